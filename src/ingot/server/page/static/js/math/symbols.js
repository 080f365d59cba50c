// The symbols of LaTeX: names come in, characters go out.

const table = (text) =>
  new Map(
    text
      .trim()
      .split(/\s+/)
      .map((pair) => pair.split("=")),
  );

/** Letters, drawn as identifiers. */
export const LETTERS = table(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι
  kappa=κ lambda=λ mu=μ nu=ν xi=ξ omicron=ο pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ
  upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ
  Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω ell=ℓ hbar=ℏ imath=ı jmath=ȷ Re=ℜ Im=ℑ aleph=ℵ wp=℘ infty=∞
  partial=∂ nabla=∇ emptyset=∅ varnothing=∅ forall=∀ exists=∃ nexists=∄ top=⊤ bot=⊥ angle=∠
  degree=° ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ prime=′ dagger=† ddagger=‡ checkmark=✓
  square=□ Box=□ blacksquare=■ triangle=△ star=⋆ S=§ P=¶ pounds=£ euro=€ backslash=\\ %=% $=$ &=& #=# _=_
`);

/** Operators, relations and arrows. */
export const OPERATORS = table(`
  times=× div=÷ pm=± mp=∓ cdot=⋅ ast=∗ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ wedge=∧
  land=∧ vee=∨ lor=∨ neg=¬ lnot=¬ cap=∩ cup=∪ setminus=∖ sqcup=⊔ sqcap=⊓ le=≤ leq=≤ leqslant=⩽ ge=≥
  geq=≥ geqslant=⩾ ne=≠ neq=≠ lt=< gt=> ll=≪ gg=≫ equiv=≡ approx=≈ cong=≅ sim=∼ simeq=≃ propto=∝
  doteq=≐ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊ mid=∣ nmid=∤
  parallel=∥ perp=⊥ vdash=⊢ dashv=⊣ models=⊨ prec=≺ succ=≻ preceq=⪯ succeq=⪰ to=→ rightarrow=→
  longrightarrow=⟶ gets=← leftarrow=← longleftarrow=⟵ leftrightarrow=↔ Rightarrow=⇒
  Longrightarrow=⟹ implies=⟹ Leftarrow=⇐ impliedby=⟸ Leftrightarrow=⇔ iff=⟺ mapsto=↦ longmapsto=⟼
  hookrightarrow=↪ uparrow=↑ downarrow=↓ updownarrow=↕ rightharpoonup=⇀ rightleftharpoons=⇌
  nearrow=↗ searrow=↘ therefore=∴ because=∵ colon=: coloneqq=≔ triangleq=≜ ltimes=⋉ rtimes=⋊
  lVert=‖ rVert=‖ Vert=‖ |=‖ lvert=| rvert=| vert=|
`);

/** Operators whose limits go above and below in a formula of its own. */
export const LARGE = table(`
  sum=∑ prod=∏ coprod=∐ int=∫ iint=∬ iiint=∭ oint=∮ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂
  bigvee=⋁ bigwedge=⋀ bigsqcup=⨆
`);

/** Functions; those that take limits are marked by a star. */
export const FUNCTIONS = new Set(
  `sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp deg dim hom ker arg
   lim* limsup* liminf* max* min* sup* inf* det* gcd* Pr* argmax* argmin*`
    .split(/\s+/)
    .map((name) => name.trim()),
);

/** Delimiters after \left, \right, \big and the like. */
export const DELIMITERS = table(`
  (=( )=) [=[ ]=] |=| /=/ {={ }=} lbrace={ rbrace=} lbrack=[ rbrack=] langle=⟨ rangle=⟩ lfloor=⌊
  rfloor=⌋ lceil=⌈ rceil=⌉ vert=| lvert=| rvert=| Vert=‖ lVert=‖ rVert=‖ backslash=\\ uparrow=↑
  downarrow=↓
`);

/** Marks above or below a group. */
export const ACCENTS = table(
  `
  hat=^ widehat=^ bar=¯ overline=¯ tilde=~ widetilde=~ vec=→ overrightarrow=→ dot=˙ ddot=¨ check=ˇ
  breve=˘ acute=´ grave=` +
    "`" +
    ` mathring=˚ overbrace=⏞
`,
);
export const UNDER = table("underline=_ underbrace=⏟");

/** Spaces in em. */
export const SPACES = new Map([
  [",", 0.17],
  [":", 0.22],
  [">", 0.22],
  [";", 0.28],
  [" ", 0.25],
  ["!", -0.17],
  ["quad", 1],
  ["qquad", 2],
  ["thinspace", 0.17],
  ["enspace", 0.5],
]);

// Where each alphabet begins: capital letters, small letters, digits.
const ALPHABETS = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce],
  blackboard: [0x1d538, 0x1d552, 0x1d7d8],
  script: [0x1d49c, 0x1d4b6, null],
  fraktur: [0x1d504, 0x1d51e, null],
  sans: [0x1d5a0, 0x1d5ba, 0x1d7e2],
  mono: [0x1d670, 0x1d68a, 0x1d7f6],
};
const EXCEPTIONS = {
  blackboard: table("C=ℂ H=ℍ N=ℕ P=ℙ Q=ℚ R=ℝ Z=ℤ"),
  script: table("B=ℬ E=ℰ F=ℱ H=ℋ I=ℐ L=ℒ M=ℳ R=ℛ e=ℯ g=ℊ o=ℴ"),
  fraktur: table("C=ℭ H=ℌ I=ℑ R=ℜ Z=ℨ"),
};

/** A text in one of the alphabets of mathematics. */
export function inAlphabet(text, alphabet) {
  const [capital, small, digit] = ALPHABETS[alphabet];
  return [...text]
    .map((letter) => {
      const known = EXCEPTIONS[alphabet]?.get(letter);
      if (known) return known;
      if (/[A-Z]/.test(letter)) return String.fromCodePoint(capital + letter.charCodeAt(0) - 65);
      if (/[a-z]/.test(letter)) return String.fromCodePoint(small + letter.charCodeAt(0) - 97);
      if (/\d/.test(letter) && digit) return String.fromCodePoint(digit + Number(letter));
      return letter;
    })
    .join("");
}
