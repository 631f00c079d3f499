// Tools for agents, without a framework: read, write, edit, claim, release. `vercel-ai.mjs` and `openai-agents.mjs` hand
// them to their frameworks. The descriptions are what the model reads.
'use strict';
const { NotOwner, Refused, TollgateError } = require('./errors.js');

/** What the model is told: for each refused file a report, which says what to do. */
function explain(error) {
  if (error instanceof Refused) return error.reports.map((report) => JSON.stringify(report)).join('\n');
  return error.payload?.hint ? `${error.message}\nhint: ${error.payload.hint}` : error.message;
}

const text = (description, more = {}) => ({ type: 'string', description, ...more });
const PATH = text('The file, relative to the workspace.');

const object = (properties, optional = []) => ({
  type: 'object',
  properties,
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
  additionalProperties: false,
});

/** The tools of one agent: one turn, and the tasks that it has claimed. */
class AgentTools {
  #workspace;
  #agent;
  #turn;
  #claims = new Map();

  constructor(workspace, agent) {
    this.#workspace = workspace;
    this.#agent = agent;
  }

  /** The five tools: name, description, parameters as JSON Schema, and the function. */
  definitions() {
    return [
      {
        name: 'read_file',
        description: 'Read a text file. Read a file before you change it.',
        parameters: object({ path: PATH }),
        execute: async ({ path }) => (await (await this.#begun()).read(path)).text,
      },
      {
        name: 'write_file',
        description: 'Write a whole text file, or create it. Refused if somebody has changed the file since you read it: then read it '
          + 'again, redo your change on what you find, and write.',
        parameters: object({ path: PATH, content: text('The new text of the whole file.') }),
        execute: async ({ path, content }) => {
          await (await this.#begun()).write(path, content);
          return `wrote ${path}`;
        },
      },
      {
        name: 'edit_file',
        description: 'Replace one piece of text in a file. Refused if somebody has changed the file since you read it: then read it again.',
        parameters: object({
          path: PATH,
          old_text: text('The text to replace. It must occur exactly once.'),
          new_text: text('The text to put in its place.'),
        }),
        execute: async ({ path, old_text, new_text }) => {
          await (await this.#begun()).edit(path, old_text, new_text);
          return `edited ${path}`;
        },
      },
      {
        name: 'claim_task',
        description: 'Claim a task, so that no other agent works on it. Returns the task and its text.',
        parameters: object({ task: text('The name of the task. Leave it empty to get the next one.') }, ['task']),
        execute: ({ task }) => this.#claim(task),
      },
      {
        name: 'release_task',
        description: 'Release a task that you have claimed: say whether the work succeeded.',
        parameters: object({
          task: text('The name of the task.'),
          result: text('`success` if the work is done, `failure` if it has to be tried again.', { enum: ['success', 'failure'] }),
          note: text('One sentence about the result.'),
        }, ['note']),
        execute: ({ task, result, note }) => this.#release(task, result, note),
      },
    ];
  }

  /** Gives back the tasks that were not released, and ends the turn. */
  async end() {
    const [turn, claims] = [this.#turn, [...this.#claims.values()]];
    this.#turn = undefined;
    this.#claims.clear();
    for (const claim of claims.filter((claim) => !claim.ended)) {
      // Somebody else may have the task by now.
      await claim.giveBack().catch((error) => {
        if (!(error instanceof NotOwner)) throw error;
      });
    }
    await (await turn)?.end();
  }

  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    return this.end();
  }

  /** One turn, however many tools are called at the same time. */
  #begun() {
    this.#turn ??= this.#workspace.turn({ agent: this.#agent }).catch((error) => {
      this.#turn = undefined;
      throw error;
    });
    return this.#turn;
  }

  async #claim(task) {
    const vault = await this.#workspace.vault();
    const options = { agent: this.#agent };
    const claim = task ? await vault.claim(task, options) : await vault.claimNext(options);
    this.#claims.set(claim.task, claim);
    claim.fence(await this.#begun());
    return JSON.stringify({ ...claim.payload, text: await claim.text() });
  }

  async #release(task, result, note) {
    const name = task.endsWith('.md') ? task : `${task}.md`;
    const claim = this.#claims.get(name);
    if (!claim) throw new TollgateError({ message: `you have not claimed \`${name}\`: claim it first`, payload: {} });
    return JSON.stringify(await claim.release(result, { note: note || undefined }));
  }
}

module.exports = { AgentTools, explain };
