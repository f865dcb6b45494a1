/** Message is one server-sent event. */
export interface Message {
  id?: string; // absent: the reader's place stays
  type: string;
  data: string;
}

/** parser cuts a stream of text into events, whatever the pieces it comes in. */
export function parser(give: (m: Message) => void, heard: () => void = () => {}) {
  let rest = "";
  let id: string | undefined;
  let type = "message";
  let data: string[] = [];
  const line = (l: string) => {
    if (l === "") {
      if (data.length > 0) give({ id, type, data: data.join("\n") });
      id = undefined;
      type = "message";
      data = [];
      return;
    }
    if (l.startsWith(":")) return;
    const colon = l.indexOf(":");
    const field = colon < 0 ? l : l.slice(0, colon);
    const value = colon < 0 ? "" : l.slice(l[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") data.push(value);
    else if (field === "event") type = value;
    else if (field === "id" && !value.includes("\0")) id = value;
  };
  return (piece: string) => {
    heard();
    rest += piece;
    let from = 0;
    for (;;) {
      const end = rest.indexOf("\n", from);
      if (end < 0) break;
      line(rest.slice(from, rest[end - 1] === "\r" ? end - 1 : end));
      from = end + 1;
    }
    rest = rest.slice(from);
  };
}
