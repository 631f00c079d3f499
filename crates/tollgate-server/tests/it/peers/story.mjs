// The story of a stale write and its recovery, with an official TypeScript client.
// usage: node story.mjs v1|v2 stdio COMMAND ARGS... | http URL      (the folder is in WORKSPACE)
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [generation, door, where, ...args] = process.argv.slice(2);
const root = process.env.WORKSPACE;
const require = createRequire(path.join(process.env.PEERS, 'package.json'));
const load = name => import(pathToFileURL(require.resolve(name)).href);
const pick = module => module.default ?? module;

let Client, Stdio, Http;
if (generation === 'v1') {
  Client = pick(await load('@modelcontextprotocol/sdk/client/index.js')).Client;
  Stdio = pick(await load('@modelcontextprotocol/sdk/client/stdio.js')).StdioClientTransport;
  Http = pick(await load('@modelcontextprotocol/sdk/client/streamableHttp.js')).StreamableHTTPClientTransport;
} else {
  const client = pick(await load('@modelcontextprotocol/client'));
  Client = client.Client;
  Http = client.StreamableHTTPClientTransport;
  Stdio = pick(await load('@modelcontextprotocol/client/stdio')).StdioClientTransport;
}

const client = new Client({ name: 'story', version: '1' });
await client.connect(door === 'stdio' ? new Stdio({ command: where, args }) : new Http(new URL(where)));
assert.match(client.getInstructions(), /STALE_FILE/);

// The client validates every result against these schemas, including refusals.
const { tools } = await client.listTools();
assert.equal(tools.length, 29);
const call = (name, args) => client.callTool({ name, arguments: args });

const file = path.join(root, 'story.txt');
fs.writeFileSync(file, 'one\n');
const read = await call('read_text_file', { path: 'story.txt' });
assert.deepEqual(read.structuredContent, { content: 'one\n' });
assert.equal(read._meta.sha256.length, 64);
fs.writeFileSync(file, 'foreign\n');

const refused = await call('write_file', { path: 'story.txt', content: 'mine\n' });
assert.equal(refused.isError, true);
assert.equal(refused.structuredContent.error_type, 'STALE_FILE');
assert.equal(refused.structuredContent.expected_hash, read._meta.sha256);
assert.equal(JSON.parse(refused.content[0].text).error_type, 'STALE_FILE');
assert.equal(fs.readFileSync(file, 'utf8'), 'foreign\n');

const again = await call('read_text_file', { path: 'story.txt' });
const written = await call('write_file', { path: 'story.txt', content: again.structuredContent.content + 'mine\n' });
assert.equal(written.isError, undefined);
assert.equal(fs.readFileSync(file, 'utf8'), 'foreign\nmine\n');

const { turn_id } = (await call('begin_turn', {})).structuredContent;
const hash = await call('get_initial_hash', { file_path: 'story.txt', turn_id });
assert.equal(hash.structuredContent.initial_hash, null);
fs.writeFileSync(path.join(root, 'dot.png'), Buffer.from([1, 2, 3]));
const media = await call('read_media_file', { path: 'dot.png' });
assert.equal(media.content[0].type, 'image');
const outside = await call('read_text_file', { path: '../x' });
assert.equal(outside.structuredContent.error_type, 'OUTSIDE_WORKSPACE');
const missing = await call('read_text_file', { path: 'missing' });
assert.equal(missing.isError, true);

// A task is listed, claimed, refused to a second claim, and released. Over HTTP the claim is a lease.
assert.equal((await call('list_tasks', {})).structuredContent.total, 1);
const claimed = (await call('claim_task', { task: 'water' })).structuredContent;
assert.equal(claimed.claimed, true);
assert.equal('lease_until' in claimed, door === 'http');
const lost = await call('claim_task', { task: 'water' });
assert.deepEqual([lost.isError, lost.structuredContent.reason], [true, 'lost']);
const own = { task: 'water', claim_id: claimed.claim_id };
assert.equal((await call('renew_task', own)).structuredContent.claim_id, own.claim_id);
assert.equal((await call('report_progress', { ...own, text: 'filled the can' })).structuredContent.noted, true);
assert.equal((await call('get_task', { task: 'water' })).structuredContent.state, 'In_Progress');
assert.equal((await call('release_task', { ...own, result: 'success' })).structuredContent.state, 'Done');
const late = await call('release_task', { ...own, result: 'success' });
assert.deepEqual([late.isError, late.structuredContent.reason], [true, 'not_owner']);
assert.match(fs.readFileSync(path.join(root, 'vault/Done/water.md'), 'utf8'), /filled the can/);
await client.close();
console.log('the story is complete');
