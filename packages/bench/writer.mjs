// One side of a comparison: for each line on stdin, one write of 4 KiB, and its time in nanoseconds on stdout.
// `writer.mjs CALL FOLDER`: a guarded call, or one of Node.js itself over a file that exists.
import { promises, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Workspace } from 'tollgate-guard';

const [call, folder] = process.argv.slice(2);
const turn = await new Workspace(folder).turn({ agent: 'node' });
const path = join(folder, call);
await turn.write(call, '');
// A file that is truncated before it is written is flushed when it is closed (ext4).
const over = { flag: 'r+' };
const write = {
  write: (content) => turn.write(call, content),
  writeSync: (content) => turn.writeSync(call, content),
  writeFile: (content) => promises.writeFile(path, content, over),
  writeFileSync: (content) => writeFileSync(path, content, over),
}[call];
let number = 0;
for await (const _ of createInterface({ input: process.stdin })) {
  const content = Buffer.from(String(number++).padStart(4096));
  const start = process.hrtime.bigint();
  await write(content);
  console.log(String(process.hrtime.bigint() - start));
}
