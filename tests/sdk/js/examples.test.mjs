// The examples, run as the README shows: `npm install @azure/cosmos` beside them, then `node examples/run.mjs`.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { promisify } from "node:util";

import { endpoint } from "./common.mjs";

const root = path.join(import.meta.dirname, "../../..");

const EXPECTED = `\
added On Loops by ada and grace
a book of an unknown author: 400/404
books of ada: 1
checked before it is created: 400/404
metadata: 2 books, 440 pages, newest Volume 1
imported 200 and deleted 150 of them: 50 remain
ordered for 21
more cups than there are: 400/4001
tea in stock: 8
`;

const LIBRARY = `\
On Loops by Ada and Grace, published by Acme
Ada has 2 books: On Knots, On Loops
Acme has printed 420 pages
a book of an unknown author: 400/6101
an author with books cannot go: 409/6102
after a change of name: Ada King
after a book was deleted: 1
after its publisher was deleted: named no more
On Loops with its authors in one query: Ada King 1, Grace 1
`;

const BLOG = `\
declared over a post with 15 comments: 15 comments, in the post c13, c14, c15, in pages [10, 2]
10 more: 25 comments, in the post c23, c24, c25, in pages [10, 10, 2]
the last one taken back: 24 comments, in the post c22, c23, c24, in pages [10, 10, 1]
found in a page: comment 4
posts of Ada: 1
pages after the post was deleted: 0
posts of Ada: 0
`;

test("the README examples run", async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), "examples-"));
  t.after(() => rm(folder, { recursive: true }));
  await cp(path.join(root, "examples"), path.join(folder, "examples"), { recursive: true });
  await symlink(process.env.QUIRE_NODE_MODULES, path.join(folder, "node_modules"));
  const programs = { "run.mjs": EXPECTED, "library.mjs": LIBRARY, "blog.mjs": BLOG };
  for (const [program, expected] of Object.entries(programs)) {
    assert.ok((await readFile(path.join(root, "README.md"), "utf8")).includes(`node examples/${program}`));
    const { stdout } = await promisify(execFile)("node", [`examples/${program}`, endpoint], { cwd: folder });
    assert.equal(stdout, expected);
  }
});

test("the examples agree with the declarations", async () => {
  const compiler = path.join(process.env.QUIRE_NODE_MODULES, "typescript/bin/tsc");
  const project = path.join(root, "examples/jsconfig.json");
  const { stdout } = await promisify(execFile)("node", [compiler, "--noEmit", "--project", project]);
  assert.equal(stdout, "");
});
