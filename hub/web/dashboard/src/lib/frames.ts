// Recorded output is a sequence of frames: kind (1 byte), three zeros, length and time
// big endian, payload. See shared/fleet/logframe.go.

export const header = 16;
const greatest = 64 << 10;

export type Kind = "stdout" | "stderr" | "mark";
const kinds: Record<number, Kind> = { 1: "stdout", 2: "stderr", 3: "mark" };

export interface Frame {
  kind: Kind;
  at: number;
  payload: Uint8Array;
}

/** size gives the length of the frame that begins at an offset, 0 where none can. */
function size(b: DataView, at: number): number {
  const head = b.getUint32(at);
  const kind = head >>> 24;
  if (kind < 1 || kind > 3 || (head & 0xffffff) !== 0) return 0;
  const n = b.getUint32(at + 4);
  // Times before 2001 or after 2286 are not of a job: that finds text which looks like a header.
  const ms = Number(b.getBigUint64(at + 8));
  if (n > greatest || ms < 1e12 || ms > 1e13) return 0;
  return header + n;
}

/**
 * align finds the first frame in bytes that begin anywhere: a place from which headers
 * follow one another. It is -1 where there is none.
 */
export function align(bytes: Uint8Array): number {
  const b = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let start = 0; start + header <= bytes.length && start <= greatest + header; start++) {
    let at = start;
    let seen = 0;
    while (seen < 3 && at + header <= bytes.length) {
      const n = size(b, at);
      if (n === 0) break;
      seen++;
      at += n;
    }
    if (seen === 3 || (seen > 0 && at + header > bytes.length)) return start;
  }
  return -1;
}

/** decode gives the whole frames at the beginning of bytes, and how many bytes they take. */
export function decode(bytes: Uint8Array): { frames: Frame[]; used: number } {
  const b = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const frames: Frame[] = [];
  let at = 0;
  while (at + header <= bytes.length) {
    const n = size(b, at);
    if (n === 0 || at + n > bytes.length) break;
    frames.push({ kind: kinds[bytes[at]!]!, at: Number(b.getBigUint64(at + 8)), payload: bytes.subarray(at + header, at + n) });
    at += n;
  }
  return { frames, used: at };
}
