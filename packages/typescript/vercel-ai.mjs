// Tools for the Vercel AI SDK: `generateText({ model, tools: tools(kit), ... })`.
import { jsonSchema, tool } from 'ai';

import { TollgateError, explain } from './index.mjs';

/** The tools of an agent. A refusal is the error of a tool, and the model reads it. */
export function tools(kit) {
  const entries = kit.definitions().map(({ name, description, parameters, execute }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema(parameters),
      execute: async (input) => {
        try {
          return await execute(input);
        } catch (error) {
          throw error instanceof TollgateError ? new Error(explain(error), { cause: error }) : error;
        }
      },
    }),
  ]);
  return Object.fromEntries(entries);
}
