// One side of a comparison: for each line on stdin, one guarded write of 4 KiB, and its time in nanoseconds on stdout.
import { createInterface } from 'node:readline';
import { Workspace } from 'tollgate-guard';

const turn = await new Workspace(process.argv[2]).turn({ agent: 'node' });
let number = 0;
for await (const _ of createInterface({ input: process.stdin })) {
  const content = Buffer.from(String(number++).padStart(4096));
  const start = process.hrtime.bigint();
  await turn.write('node', content);
  console.log(String(process.hrtime.bigint() - start));
}
