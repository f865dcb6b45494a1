/** words cuts a command line as a shell does, without expanding anything. Undefined: a quote is not closed. */
export function words(line: string): string[] | undefined {
  const out: string[] = [];
  let word = "";
  let began = false;
  let quote = "";
  for (let i = 0; i < line.length; i++) {
    const c = line[i]!;
    if (quote === "'") {
      if (c === "'") quote = "";
      else word += c;
    } else if (c === "\\" && i + 1 < line.length) {
      const next = line[++i]!;
      if (quote === '"' && !'"\\$`\n'.includes(next)) word += c;
      if (next !== "\n") word += next;
      began = true;
    } else if (quote === '"') {
      if (c === '"') quote = "";
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      began = true;
    } else if (/\s/.test(c)) {
      if (began) out.push(word);
      word = "";
      began = false;
    } else {
      word += c;
      began = true;
    }
  }
  if (quote) return undefined;
  if (began) out.push(word);
  return out;
}

/** pairs reads lines or words of the form k=v; wrong ones are told. */
export function pairs(text: string): { map: Record<string, string>; wrong: string[] } {
  const map: Record<string, string> = {};
  const wrong: string[] = [];
  for (const p of text.split(/[\s,]+/).filter(Boolean)) {
    const i = p.indexOf("=");
    if (i <= 0) wrong.push(p);
    else map[p.slice(0, i)] = p.slice(i + 1);
  }
  return { map, wrong };
}

const sizes: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };

/** size reads 20GiB, 500M or plain bytes. NaN: it is none. */
export function size(text: string): number {
  const m = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*$/i.exec(text);
  const unit = m ? sizes[m[2]!.toLowerCase()] : undefined;
  return m && unit !== undefined ? Math.round(Number(m[1]) * unit) : NaN;
}
