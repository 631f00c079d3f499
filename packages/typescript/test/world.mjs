// What the tests share: an empty folder, and a state folder of its own.
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function folder(t) {
  const all = realpathSync(mkdtempSync(join(tmpdir(), 'tollgate-node-')));
  t.after(() => rmSync(all, { recursive: true }));
  for (const name of Object.keys(process.env).filter((name) => name.startsWith('TOLLGATE_'))) delete process.env[name];
  process.env.XDG_STATE_HOME = join(all, 'state');
  const workspace = join(all, 'workspace');
  mkdirSync(workspace);
  return workspace;
}
