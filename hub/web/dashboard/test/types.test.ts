import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { generate } from "../scripts/types.mjs";

test("the types are those of the hub's interface; `npm run types` makes them so", async () => {
  const there = await readFile(new URL("../src/api/types.gen.ts", import.meta.url), "utf8");
  expect(there).toBe(await generate());
});
