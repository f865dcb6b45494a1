import Markdown from "react-markdown";
import gfm from "remark-gfm";

/** What an agent wrote is shown as text with marks: no HTML of its own, no pictures from elsewhere. */
export default function Prose({ text }: { text: string }) {
  return (
    <Markdown
      remarkPlugins={[gfm]}
      components={{
        a: ({ href, children }) => (
          <a href={href} rel="noreferrer noopener" target="_blank">
            {children}
          </a>
        ),
        img: ({ alt }) => <span className="quiet">[{alt}]</span>,
        h1: ({ children }) => <h3>{children}</h3>,
        h2: ({ children }) => <h3>{children}</h3>,
        table: ({ children }) => (
          <div className="table-scroll">
            <table>{children}</table>
          </div>
        ),
      }}
    >
      {text}
    </Markdown>
  );
}
