// The tools in the real frameworks, with scripted models.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { AgentTools, Fenced, Workspace } from 'tollgate-guard';
import { folder } from './world.mjs';

/** A scripted model: what it does, and what it is told. */
class Script {
  told = [];
  #steps;

  constructor(root) {
    this.root = root;
    this.#steps = this.#story();
  }

  /** The next call, after the result of the last one. */
  next(told) {
    if (told !== undefined) this.told.push(told);
    return this.#steps.next().value;
  }

  *#story() {
    yield ['read_file', { path: 'notes.md' }];
    writeFileSync(join(this.root, 'notes.md'), 'one\ntwo\n');
    yield ['write_file', { path: 'notes.md', content: 'one\nmine\n' }];
    yield ['read_file', { path: 'notes.md' }];
    yield ['write_file', { path: 'notes.md', content: `${this.told.at(-1)}mine\n` }];
    yield ['edit_file', { path: 'notes.md', old_text: 'mine', new_text: 'ours' }];
    yield ['claim_task', {}];
    yield ['release_task', { task: 'water', result: 'success' }];
  }

  check() {
    const [first, refused, again, wrote, edited, claimed, released] = this.told;
    assert.deepEqual([first, again, wrote, edited], ['one\n', 'one\ntwo\n', 'wrote notes.md', 'edited notes.md']);
    assert.match(refused, /"error_type":"STALE_FILE".*recovery_hint/);
    assert.match(claimed, /Water the plants/);
    assert.match(released, /"state":"Done"/);
    assert.equal(readFileSync(join(this.root, 'notes.md'), 'utf8'), 'one\ntwo\nours\n');
    assert.ok(existsSync(join(this.root, 'vault/Done/water.md')));
  }
}

async function story(t) {
  const root = folder(t);
  writeFileSync(join(root, 'notes.md'), 'one\n');
  const workspace = new Workspace(root);
  await (await workspace.vault({ create: true })).add('water', '# Water the plants\n');
  return { script: new Script(root), kit: new AgentTools(workspace, 'blue'), workspace };
}

test('an agent that lost its task writes no more', async (t) => {
  const { kit, workspace, script } = await story(t);
  const call = (wanted, input) => kit.definitions().find(({ name }) => name === wanted).execute(input);
  await call('read_file', { path: 'notes.md' });
  await call('claim_task', {});
  // A person moves the task back by hand, and another agent gets it.
  renameSync(join(script.root, 'vault/In_Progress/blue/water.md'), join(script.root, 'vault/Needs_Action/water.md'));
  await (await workspace.vault()).claim('water', { agent: 'red', tenure: 'leased' });
  await assert.rejects(call('write_file', { path: 'notes.md', content: 'too late\n' }), Fenced);
  assert.equal(readFileSync(join(script.root, 'notes.md'), 'utf8'), 'one\n');
  await kit.end();
});

test('what an agent does not release is given back', async (t) => {
  const { kit, workspace } = await story(t);
  await kit.definitions().find(({ name }) => name === 'claim_task').execute({});
  const vault = await workspace.vault();
  await assert.rejects(vault.claim('water', { agent: 'red' }));
  await kit.end();
  await (await vault.claim('water', { agent: 'red' })).release();
});

test('Vercel AI SDK', async (t) => {
  const { generateText, stepCountIs } = await import('ai');
  const { MockLanguageModelV4 } = await import('ai/test');
  const { tools } = await import('tollgate-guard/vercel-ai');
  const { script, kit } = await story(t);
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const model = new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => {
      const last = prompt.at(-1);
      const result = last.role === 'tool' ? last.content.at(-1).output : undefined;
      if (result?.value?.includes?.('STALE_FILE')) assert.equal(result.type, 'error-text');
      const call = script.next(result?.value);
      const content = call
        ? [{ type: 'tool-call', toolCallId: `call${script.told.length}`, toolName: call[0], input: JSON.stringify(call[1]) }]
        : [{ type: 'text', text: 'done' }];
      const finish = call ? 'tool-calls' : 'stop';
      return { content, finishReason: { unified: finish, raw: finish }, usage, warnings: [] };
    },
  });
  const { text } = await generateText({ model, tools: tools(kit), prompt: 'go', stopWhen: stepCountIs(20) });
  await kit.end();
  assert.equal(text, 'done');
  script.check();
});

test('OpenAI Agents SDK', async (t) => {
  const { Agent, Runner, Usage } = await import('@openai/agents');
  const { tools } = await import('tollgate-guard/openai-agents');
  const { script, kit } = await story(t);
  const model = {
    async getResponse({ input }) {
      const last = Array.isArray(input) ? input.at(-1) : {};
      const output = last.type === 'function_call_result' ? last.output : undefined;
      const call = script.next(output === undefined ? undefined : output.text ?? output);
      const item = call
        ? { type: 'function_call', callId: `call${script.told.length}`, name: call[0], arguments: JSON.stringify(call[1]), status: 'completed' }
        : { type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'done' }] };
      return { usage: new Usage(), output: [item] };
    },
    async *getStreamedResponse() {
      throw new Error('not streamed');
    },
  };
  const agent = new Agent({ name: 'blue', model, tools: tools(kit) });
  const result = await new Runner({ tracingDisabled: true }).run(agent, 'go', { maxTurns: 20 });
  await kit.end();
  assert.equal(result.finalOutput, 'done');
  script.check();
});
