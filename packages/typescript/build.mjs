// Builds what the package needs from Rust, for this platform, and puts it where index.js and bin/tollgate.js look for it:
// the native module, and the command `tollgate`.
//
// Two variables are for tests and for release builds:
// - TOLLGATE_BINARY: a command that is built already.
// - TOLLGATE_PROFILE: the profile of cargo for what is built here. Default: release.
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const profile = process.env.TOLLGATE_PROFILE ?? 'release';
const folder = join(here, 'native', `${process.platform}-${process.arch}`);

/** Builds a package and says where cargo put it. */
function build(name, find) {
  const args = ['build', '--locked', '-p', name, '--profile', profile, '--message-format', 'json-render-diagnostics'];
  const out = execFileSync('cargo', args, { cwd: here, stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28 });
  const messages = out.toString().trim().split('\n').map((line) => JSON.parse(line));
  const found = messages.map(find).find(Boolean);
  if (!found) throw new Error(`cargo has not built ${name}`);
  return found;
}

const module = build('tollgate-node', (message) =>
  message.target?.name === 'tollgate_node' && message.filenames?.find((file) => /\.(so|dylib)$/.test(file)));
const command = process.env.TOLLGATE_BINARY
  ?? build('tollgate-cli', (message) => message.target?.name === 'tollgate' && message.executable);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
copyFileSync(module, join(folder, 'tollgate.node'));
copyFileSync(command, join(folder, 'tollgate'));
chmodSync(join(folder, 'tollgate'), 0o755);
