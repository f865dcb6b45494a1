/** lines cuts bytes into lines of JSON; a line that is none is left out. */
export function lines<T>(give: (v: T) => void): (piece: Uint8Array) => number {
  const text = new TextDecoder();
  let rest = "";
  let pending = 0; // bytes of the line that has not ended
  return (piece) => {
    rest += text.decode(piece, { stream: true });
    const last = piece.lastIndexOf(10);
    const whole = last < 0 ? 0 : pending + last + 1;
    pending = last < 0 ? pending + piece.length : piece.length - last - 1;
    const parts = rest.split("\n");
    rest = parts.pop() ?? "";
    for (const p of parts) {
      if (!p) continue;
      try {
        give(JSON.parse(p) as T);
      } catch {
        // What a later release writes must not hide what can be read.
      }
    }
    return whole; // bytes after which a reader can go on
  };
}
