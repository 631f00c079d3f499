import type { Tool } from 'ai';

import type { AgentTools, ToolDefinition } from './index.mjs';

/** The tools of an agent. A refusal is the error of a tool, and the model reads it. */
export function tools(kit: AgentTools): Record<ToolDefinition['name'], Tool<any, string>>;
