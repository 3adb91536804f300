// A reporter of tests: `file::name` of each that ran and passed.

import { relative } from "node:path";

export default async function* passed(events) {
  for await (const { type, data } of events) {
    if (type === "test:pass" && !data.skip && !data.todo && data.file) {
      yield `${relative(process.cwd(), data.file)}::${data.name}\n`;
    }
  }
}
