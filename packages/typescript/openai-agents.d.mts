import type { FunctionTool } from '@openai/agents';

import type { AgentTools } from './index.mjs';

/** The tools of an agent. A refusal is what the model reads as the result of its call. */
export function tools(kit: AgentTools): FunctionTool<any, any, string>[];
