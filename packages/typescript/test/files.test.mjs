// The first promise from Node.js: no lost update.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, linkSync, mkdirSync, openSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

import * as tollgate from 'tollgate-guard';
import { folder } from './world.mjs';

const { Workspace } = tollgate;
const sha256 = (text) => createHash('sha256').update(text).digest('hex');
const ledger = (root) => readFileSync(join(root, '.tollgate/ledger.jsonl'), 'utf8').trim().split('\n').map((line) => JSON.parse(line));

test('an agent writes what it has read', async (t) => {
  const root = folder(t);
  writeFileSync(join(root, 'notes.md'), 'one\n');
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  const read = await turn.read('notes.md');
  assert.equal(read.text, 'one\n');
  assert.deepEqual([read.sha256, read.size, [...read.bytes]], [sha256('one\n'), 4, [...Buffer.from('one\n')]]);
  const applied = await turn.write('notes.md', `${read.text}two\n`);
  assert.deepEqual([applied.hash_before, applied.hash_after], [sha256('one\n'), sha256('one\ntwo\n')]);
  await turn.end();
  assert.equal(readFileSync(join(root, 'notes.md'), 'utf8'), 'one\ntwo\n');
  assert.deepEqual(ledger(root).map((line) => line.action_type), ['TURN_STARTED', 'MUTATION', 'TURN_ENDED']);
});

test('unfinished work that the agent has not read stays', async (t) => {
  const root = folder(t);
  const git = (...words) =>
    execFileSync('git', ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.org', ...words], { cwd: root });
  const notes = join(root, 'notes.md');
  mkdirSync(join(root, '.tollgate'));
  writeFileSync(join(root, '.tollgate/config.toml'), '[guard]\nunfinished = "refuse"\n');
  writeFileSync(notes, 'one\n');
  git('init', '-q');
  git('add', 'notes.md');
  git('commit', '-q', '-m', 'one');
  writeFileSync(notes, 'unfinished\n');
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  for (const change of [
    () => turn.write('notes.md', 'mine\n'),
    () => turn.delete('notes.md'),
    () => turn.moveFile('notes.md', 'moved.md'),
  ]) {
    await assert.rejects(change(), (error) => {
      assert.ok(error instanceof tollgate.StaleFile);
      assert.deepEqual(error.payload, {
        error_type: 'STALE_FILE',
        file_path: notes,
        expected_hash: sha256('one\n'),
        actual_hash: sha256('unfinished\n'),
        resolution: 'RE_READ_REQUIRED',
      });
      return true;
    });
    assert.equal(readFileSync(notes, 'utf8'), 'unfinished\n');
  }
  await turn.write('notes.md', `${(await turn.read('notes.md')).text}mine\n`);
  assert.equal(readFileSync(notes, 'utf8'), 'unfinished\nmine\n');
});

test('a stale write throws the payload and changes nothing', async (t) => {
  const root = folder(t);
  writeFileSync(join(root, 'notes.md'), 'one\n');
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  await turn.read('notes.md');
  writeFileSync(join(root, 'notes.md'), 'two\n');
  await assert.rejects(turn.write('notes.md', 'mine\n'), (error) => {
    assert.ok(error instanceof tollgate.StaleFile && error instanceof tollgate.Refused && error instanceof Error);
    assert.deepEqual(error.payload, {
      error_type: 'STALE_FILE',
      file_path: join(root, 'notes.md'),
      expected_hash: sha256('one\n'),
      actual_hash: sha256('two\n'),
      resolution: 'RE_READ_REQUIRED',
    });
    assert.equal(error.report.details.current_disk_hash, sha256('two\n'));
    return true;
  });
  assert.equal(readFileSync(join(root, 'notes.md'), 'utf8'), 'two\n');
  await turn.write('notes.md', `${(await turn.read('notes.md')).text}mine\n`);
  assert.equal(readFileSync(join(root, 'notes.md'), 'utf8'), 'two\nmine\n');
});

test('each refusal has its own error', async (t) => {
  const root = folder(t);
  writeFileSync(join(root, 'f'), 'a a');
  writeFileSync(join(root, 'linked'), 'x');
  linkSync(join(root, 'linked'), join(root, 'other'));
  mkdirSync(join(root, 'd'));
  const workspace = new Workspace(root);
  const turn = await workspace.turn({ agent: 'blue' });
  for (const [kind, call] of [
    ['TextNotFound', () => turn.edit('f', 'a', 'b')],
    ['OutsideWorkspace', () => turn.write('../f', 'x')],
    ['ProtectedPath', () => turn.write('.git/hooks/x', 'x')],
    ['ProtectedPath', () => turn.write('.codex/config.toml', 'x')],
    ['NotAFile', () => turn.read('d')],
    ['HardLinked', () => turn.write('linked', 'y')],
    ['StaleFile', () => turn.write('f', 'x', { expectedHash: '0'.repeat(64) })],
    ['StaleFile', () => turn.create('f', 'x')],
    ['NotFound', () => turn.read('missing')],
    ['Fault', () => workspace.turn({ agent: 'no/name' })],
    ['Fault', () => workspace.turn()],
    ['Fault', () => new Workspace(join(root, 'missing')).turn({ agent: 'blue' })],
  ]) {
    await assert.rejects(call(), (error) => {
      assert.equal(error.constructor, tollgate[kind], `${error}`);
      assert.equal(error.name, kind);
      return true;
    });
  }
  assert.equal(readFileSync(join(root, 'f'), 'utf8'), 'a a');
});

test('lines, edits, moves, deletions, bytes, merges and atomic changes', async (t) => {
  const root = folder(t);
  writeFileSync(join(root, 'f'), '1\n2\n3\n2\n');
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  assert.equal((await turn.read('f', { lines: [2, 3] })).text, '2\n3\n');
  assert.equal((await turn.read('f', { lines: [4] })).text, '2\n');
  await turn.edit('f', '2', 'two', { all: true });
  assert.equal((await turn.read('f')).text, '1\ntwo\n3\ntwo\n');
  assert.equal(await turn.initialHash('f'), sha256('1\n2\n3\n2\n'));
  await turn.moveFile('f', 'g');
  await turn.create('h', new Uint8Array([0, 255, 0, 9]).subarray(1, 3));
  const { bytes } = await turn.read('h');
  assert.deepEqual([...bytes], [255, 0]);
  await assert.rejects(async () => (await turn.read('h')).text, TypeError);
  const applied = await turn.apply([
    { path: 'g', edits: [{ oldText: '1', newText: 'one' }] },
    { path: 'h', delete: true },
    { path: 'i', content: 'new' },
  ]);
  assert.equal(applied.length, 3);
  await assert.rejects(
    turn.apply([{ path: 'i', content: 'x' }, { path: 'g', content: 'x', expected_hash: null }]), tollgate.StaleFile);
  await turn.delete('i');
  assert.deepEqual(readdirSync(root).sort(), ['.tollgate', 'g']);
  writeFileSync(join(root, 'g'), 'one\ntwo\n3\nthree\n');
  await assert.rejects(turn.write('g', 'ONE\ntwo\n3\ntwo\n'), tollgate.StaleFile);
  const merge = await turn.merge('g');
  assert.equal(merge.content, 'ONE\ntwo\n3\nthree\n');
  assert.ok(merge.clean);
  await turn.write('g', merge.content);
});

test('an ended turn answers nothing more', async (t) => {
  const turn = await new Workspace(folder(t)).turn({ agent: 'blue' });
  await turn.end();
  await turn.end();
  await assert.rejects(turn.write('f', 'y'), /has ended/);
});

test('the event loop goes on while a call waits', async (t) => {
  const root = folder(t);
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  await turn.write('f', 'x');
  // The write waits until nobody has the file open for writing. Only the event loop closes it.
  const open = openSync(join(root, 'f'), 'r+');
  setImmediate(() => closeSync(open));
  await turn.write('f', 'y');
  assert.equal(readFileSync(join(root, 'f'), 'utf8'), 'y');
});

test('a synchronous call does and answers what the asynchronous one does', async (t) => {
  const root = folder(t);
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  const same = (one, other) => assert.deepEqual(
    { ...one, path: undefined, file_path: undefined, change_id: undefined },
    { ...other, path: undefined, file_path: undefined, change_id: undefined },
  );
  for (const name of ['async', 'sync']) writeFileSync(join(root, name), '1\n2\n3\n2\n');
  const onDisk = (name) => readFileSync(join(root, name), 'utf8');

  same(turn.readSync('sync'), await turn.read('async'));
  assert.equal(turn.readSync('sync').text, '1\n2\n3\n2\n');
  same(turn.readSync('sync', { lines: [2, 3] }), await turn.read('async', { lines: [2, 3] }));

  const edited = turn.editSync('sync', '2', 'two', { all: true });
  assert.equal(onDisk('sync'), '1\ntwo\n3\ntwo\n');
  same(edited, await turn.edit('async', '2', 'two', { all: true }));

  const written = turn.writeSync('sync', new Uint8Array([0, 65, 66]).subarray(1), { expectedHash: edited.hash_after });
  assert.equal(onDisk('sync'), 'AB');
  same(written, await turn.write('async', 'AB'));

  const changes = ledger(root).filter((line) => line.action_type === 'MUTATION');
  assert.deepEqual(changes.map((line) => line.payload.target_file), ['sync', 'async', 'sync', 'async']);
});

test('a synchronous call throws the error of the asynchronous one, at once', async (t) => {
  const root = folder(t);
  writeFileSync(join(root, 'f'), 'a a');
  writeFileSync(join(root, 'stale'), 'one');
  mkdirSync(join(root, 'd'));
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  turn.readSync('stale');
  writeFileSync(join(root, 'stale'), 'two');
  for (const [kind, call, ...args] of [
    ['StaleFile', 'write', 'stale', 'mine'],
    ['StaleFile', 'edit', 'stale', 'one', 'mine'],
    ['StaleFile', 'write', 'f', 'mine', { expectedHash: 'absent' }],
    ['StaleFile', 'edit', 'f', 'a a', 'b', { expectedHash: '0'.repeat(64) }],
    ['TextNotFound', 'edit', 'f', 'a', 'b'],
    ['ProtectedPath', 'write', '.git/hooks/x', 'x'],
    ['OutsideWorkspace', 'read', '../f'],
    ['NotAFile', 'read', 'd'],
    ['NotFound', 'read', 'missing'],
    ['Fault', 'read', 'f', { lines: [3, 2] }],
  ]) {
    const rejected = await turn[call](...args).then(() => assert.fail(call), (error) => error);
    assert.throws(() => turn[`${call}Sync`](...args), (error) => {
      assert.equal(error.constructor, tollgate[kind], `${error}`);
      assert.deepEqual({ ...error }, { ...rejected });
      assert.match(error.stack, /files\.test\.mjs/);
      return true;
    });
  }
  assert.deepEqual([readFileSync(join(root, 'f'), 'utf8'), readFileSync(join(root, 'stale'), 'utf8')], ['a a', 'two']);
  await turn.end();
  assert.throws(() => turn.writeSync('f', 'y'), /has ended/);
});

test('a synchronous write blocks the event loop, so a file that only the event loop would close stays busy', async (t) => {
  const root = folder(t);
  mkdirSync(join(root, '.tollgate'));
  writeFileSync(join(root, '.tollgate/config.toml'), '[guard]\nquiet_wait = "100ms"\n');
  const turn = await new Workspace(root).turn({ agent: 'blue' });
  turn.writeSync('f', 'x');
  const open = openSync(join(root, 'f'), 'r+');
  const closed = new Promise((resolve) => setImmediate(() => resolve(closeSync(open))));
  assert.throws(() => turn.writeSync('f', 'y'), tollgate.FileBusy);
  assert.equal(readFileSync(join(root, 'f'), 'utf8'), 'x');
  await closed;
  turn.writeSync('f', 'y');
  assert.equal(readFileSync(join(root, 'f'), 'utf8'), 'y');
});

test('history and blame say who did what after reading what', async (t) => {
  const root = folder(t);
  writeFileSync(join(root, 'notes.md'), 'theirs\n');
  const workspace = new Workspace(root);
  const blue = await workspace.turn({ agent: 'blue' });
  await blue.write('notes.md', `${(await blue.read('notes.md')).text}blue\n`);
  await blue.moveFile('notes.md', 'moved.md');
  await blue.end();
  const red = await workspace.turn({ agent: 'red' });
  await red.create('other.md', 'red\n');
  const changes = await workspace.history('moved.md');
  assert.deepEqual(changes.map(({ via, paths, agent }) => [via, paths, agent]), [
    ['move_file', ['moved.md'], 'blue'],
    ['write_file', ['notes.md'], 'blue'],
  ]);
  assert.deepEqual([changes[1].added, changes[1].removed], [1, 0]);
  const last = await workspace.history(undefined, { limit: 1 });
  assert.deepEqual(last.map(({ agent }) => agent), ['red']);
  assert.deepEqual(await workspace.history(undefined, { agent: 'red', since: new Date(0) }), last);
  assert.deepEqual(await workspace.history(undefined, { since: '2999-01-01T00:00:00Z' }), []);
  const lines = await workspace.blame('moved.md', { why: true });
  assert.deepEqual(lines.map(({ text, by, agent }) => [text, by, agent]), [
    ['theirs', 'before', null],
    ['blue', 'agent', 'blue'],
  ]);
  assert.equal(lines[1].seq, changes[1].seq);
  assert.deepEqual(lines[1].reads.map(({ path, hash }) => [path, hash]), [['notes.md', sha256('theirs\n')]]);
  assert.equal((await workspace.blame('moved.md'))[1].reads, undefined);
  await assert.rejects(workspace.blame('../outside'), tollgate.Refused);
  await assert.rejects(workspace.blame('.tollgate/ledger.jsonl'), tollgate.Refused);
  await assert.rejects(workspace.history(undefined, { since: 'yesterday' }), tollgate.Fault);
});

test('require and import give the same classes', () => {
  const required = createRequire(import.meta.url)('tollgate-guard');
  assert.equal(required.StaleFile, tollgate.StaleFile);
  assert.deepEqual(Object.keys(required).sort(), Object.keys(tollgate).filter((name) => name !== 'default').sort());
});

test('the command is in the package', (t) => {
  const root = folder(t);
  const command = join(process.cwd(), 'node_modules/.bin/tollgate');
  const { version } = createRequire(import.meta.url)('tollgate-guard/package.json');
  assert.equal(execFileSync(command, ['--version']).toString(), `tollgate ${version}\n`);
  assert.throws(() => execFileSync(command, ['-C', root, 'ledger', 'nothing'], { stdio: 'pipe' }), { status: 2 });
});
