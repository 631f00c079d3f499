// Tools for the OpenAI Agents SDK: `new Agent({ name: 'blue', tools: tools(kit) })`.
import { tool } from '@openai/agents';

import { TollgateError, explain } from './index.mjs';

/** The tools of an agent. A refusal is what the model reads as the result of its call. */
export function tools(kit) {
  return kit.definitions().map(({ name, description, parameters, execute }) =>
    tool({
      name,
      description,
      parameters,
      strict: false,
      execute,
      errorFunction: (_, error) => {
        if (error instanceof TollgateError) return explain(error);
        throw error;
      },
    }));
}
