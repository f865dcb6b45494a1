import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` shows the page against a hub that runs: TUGLINE_HUB names it. The
// page signs in there as it does when the hub itself serves it.
const hub = process.env.TUGLINE_HUB ?? "http://127.0.0.1:7440";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy has no data: for scripts and styles
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
    manifest: true, // for scripts/size.mjs
  },
  worker: { format: "es" },
  server: {
    proxy: { "/v1": hub, "/openapi.json": hub },
  },
  test: { include: ["test/**/*.test.ts"], environment: "node" },
} as Parameters<typeof defineConfig>[0]);
