// The second promise from Node.js: one owner.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { Denied, Fenced, NotOwner, NothingToClaim, ProtectedPath, Workspace } from 'tollgate-guard';
import { folder } from './world.mjs';

async function vaultIn(root) {
  // Without the pause after a failed attempt, a task can be claimed again at once.
  mkdirSync(join(root, '.tollgate'));
  writeFileSync(join(root, '.tollgate/config.toml'), '[vault]\nretry = []\n');
  const workspace = new Workspace(root);
  const vault = await workspace.vault({ create: true });
  await vault.add('water', '# Water the plants\n');
  return { workspace, vault };
}

test('work releases with success', async (t) => {
  const root = folder(t);
  const { vault } = await vaultIn(root);
  const result = await vault.work({ agent: 'blue' }, async (claim) => {
    assert.deepEqual([claim.task, claim.agent, claim.mode], ['water.md', 'blue', 'execute']);
    assert.equal(claim.path, join(root, 'vault/In_Progress/blue/water.md'));
    assert.match(await claim.text(), /^# Water the plants\n/);
    assert.ok(await claim.verify());
    await claim.progress('half of them');
    await assert.rejects(vault.claim('water', { agent: 'red' }), (error) => error instanceof Denied && error.reason === 'lost');
    return 7;
  });
  assert.equal(result, 7);
  assert.equal((await vault.get('water')).state, 'Done');
  assert.match(readFileSync(join(root, 'vault/Done/water.md'), 'utf8'), /half of them/);
});

test('work that throws releases as failed', async (t) => {
  const root = folder(t);
  const { vault } = await vaultIn(root);
  await assert.rejects(vault.work({ agent: 'blue' }, () => { throw new Error('no water'); }), /no water/);
  const task = await vault.get('water');
  assert.deepEqual([task.state, task.attempts], ['Needs_Action', 1]);
  assert.match(task.content, /\*\*Result\*\*: failure[\s\S]*no water/);
});

test('a claim ends once, and an ended claim does nothing', async (t) => {
  const { vault } = await vaultIn(folder(t));
  const claim = await vault.claimNext({ agent: 'blue' });
  assert.equal((await claim.giveBack()).state, 'Needs_Action');
  assert.ok(claim.ended);
  await assert.rejects(claim.progress('more'), NotOwner);
  const next = await vault.claimNext({ agent: 'red' });
  assert.equal((await next.release('failure', { to: 'Rejected', note: 'no plants' })).state, 'Rejected');
  await assert.rejects(vault.claimNext({ agent: 'red' }), NothingToClaim);
});

test('a claim that is disposed of without a release is a failed attempt', async (t) => {
  const { vault } = await vaultIn(folder(t));
  const claim = await vault.claimNext({ agent: 'blue' });
  await claim[Symbol.asyncDispose]();
  const task = await vault.get('water');
  assert.deepEqual([task.state, task.attempts], ['Needs_Action', 1]);
});

test('a lost claim fences its turn until the agent knows', async (t) => {
  const root = folder(t);
  const { vault, workspace } = await vaultIn(root);
  const claim = await vault.claimNext({ agent: 'blue', tenure: 'leased' });
  const turn = await claim.turn();
  await turn.write('f', 'mine');
  renameSync(claim.path, join(root, 'vault/Needs_Action/water.md'));
  const other = await vault.claim('water', { agent: 'red' });
  await assert.rejects(turn.write('f', 'too late'), (error) => error instanceof Fenced && error.payload.resolution === 'STOP_WORK');
  assert.equal(await claim.verify(), false);
  await turn.write('f', 'other work');
  const stranger = await workspace.turn({ agent: 'green' });
  await assert.rejects(stranger.write(other.path, 'mine'), ProtectedPath);
  await other.release();
});

test('the task of a killed process is free at once', async (t) => {
  const root = folder(t);
  const { vault } = await vaultIn(root);
  const story = `
    const { Workspace } = require('tollgate-guard');
    (async () => {
      const claim = await (await new Workspace(process.argv[1]).vault()).claimNext({ agent: 'blue' });
      console.log('claimed');
      process.stdin.on('data', () => claim);
    })();`;
  const owner = spawn(process.execPath, ['-e', story, root], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(owner.stdout, 'data');
  await assert.rejects(vault.claim('water', { agent: 'red' }), Denied);
  owner.kill('SIGKILL');
  await once(owner, 'exit');
  await (await vault.claim('water', { agent: 'red' })).release();
});
