import type { ReactNode } from "react";

// Drawn on a grid of 16 with one stroke, so that they sit in a line of text.
const paths: Record<string, ReactNode> = {
  overview: <path d="M2.500 8.500 8 3l5.500 5.500M4 7.500V13h3V9.500h2V13h3V7.500" />,
  jobs: <path d="M2.500 4h1M6 4h7.500M2.500 8h1M6 8h7.500M2.500 12h1M6 12h7.500" />,
  add: <path d="M8 3v10M3 8h10" />,
  runners: <path d="M2.500 3.500h11v6.500h-11zM5.500 13h5M8 10v3" />,
  circuits: <path d="M2 8h3.500l4-3.500M10.500 8H14M5.500 8a.8.8 0 1 1-1.600 0 .8.8 0 0 1 1.600 0zM12 8a.8.8 0 1 1-1.600 0 .8.8 0 0 1 1.600 0z" />,
  cluster: <path d="M8 5.500a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM3.500 14a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM12.500 14a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM7 5.200 4.500 10.200M9 5.200l2.500 5M5.500 12h5" />,
  audit: <path d="M4 2.500h8v11H4zM6 5.500h4M6 8h4M6 10.500h2.500" />,
  settings: <path d="M2.500 5h6M11.500 5h2M2.500 11h2M7.500 11h6M10 3.500v3M6 9.500v3" />,
  menu: <path d="M2.500 4.500h11M2.500 8h11M2.500 11.500h11" />,
  close: <path d="m4 4 8 8M12 4l-8 8" />,
  search: <path d="M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.500 10.500l3 3" />,
  copy: <path d="M5.500 5.500V2.500h8v8h-3M2.500 5.500h8v8h-8z" />,
  down: <path d="m4 6 4 4 4-4" />,
  up: <path d="m4 10 4-4 4 4" />,
  right: <path d="m6 4 4 4-4 4" />,
  download: <path d="M8 2.500v8M4.500 7.500 8 11l3.500-3.500M3 13.500h10" />,
  journal: <path d="M8 2.500 14 13H2zM8 6.500v3M8 11.300v.2" />,
  light: <path d="M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1 1M11.600 11.600l1 1M12.600 3.400l-1 1M4.400 11.600l-1 1" />,
  dark: <path d="M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z" />,
  auto: <path d="M8 13.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zM8 2.500v11M8 5l3-1M8 8h5M8 11h3.500" />,
  crown: <path d="M2.500 12.500h11M3 10.500 2.500 5 5.500 7 8 3l2.500 4 3-2-.5 5.500z" />,
  external: <path d="M6 3H3v10h10v-3M9 3h4v4M13 3 7.500 8.500" />,
  check: <path d="m3.500 8.500 3 3 6-7" />,
  // States: each has a shape of its own, so that none is told by colour alone.
  ok: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.500 8.200l1.800 1.800 3.300-3.800" />,
  bad: <path d="M5.500 2h5L14 5.500v5L10.500 14h-5L2 10.500v-5zM6 6l4 4M10 6l-4 4" />,
  run: <path d="M8 2a6 6 0 1 1-6 6M6.500 5.500v5L10.500 8z" />,
  prep: <path d="M8 2a6 6 0 1 1-6 6M8 5v3l2 1.500" />,
  wait: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z" strokeDasharray="2 2.200" />,
  ask: <path d="m8 1.500 6.500 6.500L8 14.500 1.500 8zM6.500 6.500a1.500 1.500 0 1 1 2 1.400c-.4.2-.5.4-.5.900M8 10.800v.2" />,
  stop: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5 8h6" />,
  off: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM4 12l8-8" />,
  lost: <path d="M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3M7 7l2 2M9 7 7 9" />,
  warn: <path d="M8 2.500 14 13H2zM8 6.500v3M8 11.300v.2" />,
  pause: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.500 6v4M9.500 6v4" />,
  dot: <circle cx="8" cy="8" r="3.500" fill="currentColor" stroke="none" />,
};

export function Icon({ name, label }: { name: keyof typeof paths; label?: string }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.400" strokeLinecap="round" strokeLinejoin="round" {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": true })}>
      {paths[name]}
    </svg>
  );
}
