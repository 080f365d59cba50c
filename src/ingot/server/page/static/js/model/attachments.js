// Attachments of a message: a file comes in, its name and text go out. A PDF is read by the server;
// everything else must be text. It does not know the page.

import { pdfText } from "../api/client.js";
import { Failure } from "../api/failure.js";

export const LONGEST = 400_000; // characters: the browser stores about five million in all
const LARGEST_PDF = 10 << 20; // bytes

/** The attachment of a file: {name, text}. Throws a Failure that says why a file is refused. */
export async function readAttachment(file) {
  const isPdf = file.type === "application/pdf" || /\.pdf$/i.test(file.name);
  const text = isPdf ? await textOfPdf(file) : await textOfFile(file);
  if (!text.trim()) throw new Failure("other", `${file.name} contains no text.`);
  if (text.length > LONGEST) throw tooLong(file);
  return { name: file.name, text };
}

async function textOfFile(file) {
  if (file.size > 4 * LONGEST) throw tooLong(file); // a character has at most four bytes
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text;
  } catch {
    // not UTF-8: refused below
  }
  throw new Failure("other", `${file.name} is not a text file. Attach text, code or a PDF.`);
}

async function textOfPdf(file) {
  if (file.size > LARGEST_PDF) throw new Failure("other", `${file.name} is larger than 10 MB.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  try {
    return await pdfText(btoa(binary));
  } catch (failure) {
    throw new Failure(failure.kind ?? "other", `${file.name}: ${failure.message}`);
  }
}

function tooLong(file) {
  const most = LONGEST.toLocaleString("en");
  return new Failure("other", `${file.name} is too long: at most ${most} characters.`);
}

/** A message as the model reads it: each attachment in a fence of its own, then the text. */
export function fullText({ content, attachments = [] }) {
  const files = attachments.map(({ name, text }) => {
    const runs = text.match(/`{3,}/g) ?? [];
    const fence = "`".repeat(Math.max(3, ...runs.map((run) => run.length + 1)));
    return `${name}:\n${fence}\n${text.trimEnd()}\n${fence}`;
  });
  return [...files, content].filter(Boolean).join("\n\n");
}
