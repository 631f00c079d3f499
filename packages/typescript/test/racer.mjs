// One agent of the race: `racer.mjs NAME FOLDER LINES`. Prints how often it was refused.
import { FileBusy, StaleFile, Workspace } from 'tollgate-guard';

const [name, folder, lines] = process.argv.slice(2);
const workspace = new Workspace(folder);

async function add(line) {
  const turn = await workspace.turn({ agent: name });
  try {
    await turn.write('notes.md', (await turn.read('notes.md')).text + line);
    return true;
  } catch (error) {
    if (error instanceof StaleFile || error instanceof FileBusy) return false;
    throw error;
  } finally {
    await turn.end();
  }
}

let refused = 0;
for (let number = 0; number < Number(lines); number += 1) {
  while (!(await add(`${name} ${number}\n`))) refused += 1;
}
console.log(refused);
