// Syntax highlighting: comments, strings, numbers and keywords, found by one pattern per family of
// languages. It colours what it is sure of and leaves the rest. Text comes in, nodes go out.

import { element } from "../dom.js";

const C_WORDS = `
  abstract as async await break case catch class const continue default defer delete do else
  enum export extends extern final finally fn for from func function go if impl implements
  import in instanceof interface internal is let loop match mod move mut namespace new nil
  null of override package private protected pub public readonly ref return self sizeof static
  struct super switch template this throw throws trait try type typedef typename typeof union
  unsafe use using val var virtual void volatile when where while yield true false undefined
  None Some Ok Err bool boolean byte char double float int long short signed string unsigned
  usize isize i32 i64 u8 u32 u64 f32 f64`;
const PYTHON_WORDS = `
  and as assert async await break case class continue def del elif else except finally for
  from global if import in is lambda match nonlocal not or pass raise return self try while
  with yield True False None`;
const SHELL_WORDS = `
  if then else elif fi for in do done while until case esac function return exit local export
  set unset source alias cd echo sudo`;
const SQL_WORDS = `
  select from where and or not in is null as on join left right inner outer full cross group
  by order having limit offset union all distinct insert into values update set delete create
  table index view drop alter add primary key foreign references default case when then else
  end with`;
const RUBY_WORDS = `
  def end if elsif else unless while until do class module self nil true false return yield
  begin rescue ensure require include attr_accessor puts local function then repeat and or not`;

const STRINGS = /"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?/.source;
const LONG_STRINGS = /"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)/.source;
const HASH = /#[^\n]*/.source;
const SLASHES = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/.source;
const TAG_COMMENTS = /<!--[^]*?(?:-->|$)/.source;
const NUMBERS = /\b(?:0[xb][\da-f_]+|\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)\b/.source;
const NOTHING = /(?!)/.source;

const oneOf = (words) => `\\b(?:${words.trim().split(/\s+/).join("|")})\\b`;

const FAMILIES = [
  {
    names:
      "js javascript jsx ts typescript tsx java c h cpp c++ cs csharp go rust rs swift kotlin " +
      "scala dart php json json5 jsonc css scss zig",
    comments: SLASHES,
    strings: `\`(?:\\\\.|[^\`\\\\])*\`?|${STRINGS}`,
    words: oneOf(C_WORDS),
  },
  {
    names: "py python python3 mojo toml",
    comments: HASH,
    strings: `${LONG_STRINGS}|${STRINGS}`,
    words: oneOf(PYTHON_WORDS),
  },
  {
    names: "sh bash zsh shell console dockerfile yaml yml makefile ini",
    comments: HASH,
    strings: STRINGS,
    words: oneOf(SHELL_WORDS),
  },
  {
    names: "sql sqlite postgres mysql",
    comments: `--[^\\n]*|${SLASHES}`,
    strings: STRINGS,
    words: oneOf(SQL_WORDS),
    anyCase: true,
  },
  {
    names: "ruby rb lua perl r julia elixir",
    comments: `${HASH}|--[^\\n]*`,
    strings: STRINGS,
    words: oneOf(RUBY_WORDS),
  },
  {
    names: "html xml svg vue",
    comments: TAG_COMMENTS,
    strings: `(?<==)(?:${STRINGS})`,
    words: /<\/?[\w:-]+|\/?>/.source,
    numbers: NOTHING,
  },
];

const BY_NAME = new Map(
  FAMILIES.flatMap(({ names, comments, strings, words, numbers = NUMBERS, anyCase }) => {
    const kinds = { comment: comments, string: strings, number: numbers, word: words };
    const parts = Object.entries(kinds).map(([kind, source]) => `(?<${kind}>${source})`);
    const pattern = new RegExp(parts.join("|"), anyCase ? "gi" : "g");
    return names.split(" ").map((name) => [name, pattern]);
  }),
);

/** The nodes of a piece of code. */
export function highlighted(text, language) {
  const pattern = BY_NAME.get(language.toLowerCase());
  if (!pattern) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    nodes.push(element("span", { class: `code-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}
