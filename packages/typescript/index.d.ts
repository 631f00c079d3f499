/** tollgate for Node.js: no lost update, and one owner per task. Answers have the JSON of the command `tollgate --json`. */

export type State = 'Needs_Action' | 'In_Progress' | 'Pending_Approval' | 'Approved' | 'Done' | 'Rejected';

/** A refusal, for controllers: exactly these five keys. */
export interface Payload {
  error_type: string;
  file_path: string;
  expected_hash: string | null;
  actual_hash: string | null;
  resolution: string;
}

/** A refusal, for the agent. */
export interface Report {
  error_type: string;
  message: string;
  details: { path: string; baseline_hash: string | null; current_disk_hash: string | null };
  recovery_hint: string;
}

/** A change that was made. */
export interface Applied {
  file_path: string;
  hash_before: string | null;
  hash_after: string | null;
  change_id: string;
  guarantee: string;
  moved_to?: string;
}

/** One change of several, with exactly one of `content`, `edits`, `delete` and `move_to`. */
export interface Change {
  path: string;
  content?: string;
  edits?: { oldText: string; newText: string; all?: boolean }[];
  delete?: boolean;
  move_to?: string;
  /** `null`: the file must not exist. */
  expected_hash?: string | null;
}

/** A refused write, merged with what is on disk. */
export interface Merge {
  clean: boolean;
  content: string;
  diff: string;
}

/** Where a task is now. */
export interface Landed {
  task: string;
  state: State;
  path: string | null;
}

/** A task of a list, with the keys of `tollgate task list --json`. */
export interface Task {
  task: string;
  state: State;
  attempts: number;
  age_s: number;
  agent?: string;
  action?: string;
  priority?: string;
  claim_id?: string;
  [key: string]: unknown;
}

/** A change of one or several files, with the keys of `tollgate history --json`. */
export interface PastChange {
  seq: number;
  time: string;
  agent: string | null;
  turn: string | null;
  via: string;
  paths: string[];
  /** `null` if it is not known; `unknown` says why. */
  added: number | null;
  removed: number | null;
  task?: string;
  moved?: { from: string; to: string }[];
  unknown?: string;
}

/** A line of a file and who wrote it, with the keys of `tollgate blame --json`. */
export interface BlamedLine {
  line: number;
  text: string;
  by: 'agent' | 'somebody_else' | 'commit' | 'before' | 'not_kept';
  agent: string | null;
  seq: number | null;
  turn: string | null;
  time?: string;
  task?: string;
  commit?: string;
  author?: string;
  reads?: { path: string; hash: string; whole: boolean; time: string }[];
  reads_unknown?: string;
  [key: string]: unknown;
}

/** What must be on disk: a SHA-256, or `absent` if the file must not exist. Overrides what the turn knows. */
export interface Expectation {
  expectedHash?: string;
}

export interface ClaimOptions {
  /** The agent. Default: the one in `TOLLGATE_AGENT`. */
  agent?: string;
  /** `held`: as long as this process keeps the claim. `leased`: until its lease is over. Default: `held`. */
  tenure?: 'held' | 'leased';
}

/** A folder that agents and people share. It is opened at the first use; its state is created if it is missing. */
export class Workspace {
  constructor(path: string | URL);
  /** The folder, absolute. */
  path(): Promise<string>;
  /** Begins a turn of an agent. Default: the agent in `TOLLGATE_AGENT`. */
  turn(options?: { agent?: string }): Promise<Turn>;
  /** The tasks of the workspace. With `create`, makes the folders if they are missing. */
  vault(options?: { create?: boolean }): Promise<Vault>;
  /** What agents have changed, the newest first. With a path, only changes of that file, also under its earlier names. */
  history(
    path?: string,
    options?: { agent?: string; task?: string; since?: Date | string; limit?: number },
  ): Promise<PastChange[]>;
  /** Who wrote each line of a file; with `why`, also what the agent of the line had read before. Not a read of the file. */
  blame(path: string, options?: { why?: boolean }): Promise<BlamedLine[]>;
}

/** A file as it was read. */
export class Read {
  private constructor();
  readonly path: string;
  /** The hash of the whole file, even if only some lines were read. */
  readonly sha256: string;
  /** The size of the whole file. */
  readonly size: number;
  readonly bytes: Buffer;
  /** The bytes as text. Throws if they are not UTF-8. */
  get text(): string;
}

/**
 * The work of one agent from a request to its answer. It remembers what the agent has read and written. A call whose name ends
 * in `Sync` has the answer and the errors of the call without it, and blocks the event loop until it returns.
 */
export class Turn implements AsyncDisposable {
  private constructor();
  readonly id: string;
  readonly agent: string;
  /** Reads a file, or a range of lines: numbers from 1, both ends included. */
  read(path: string, options?: { lines?: [from: number, to?: number] }): Promise<Read>;
  readSync(path: string, options?: { lines?: [from: number, to?: number] }): Read;
  /** Writes a file, and creates it if it does not exist. */
  write(path: string, content: string | Uint8Array, options?: Expectation): Promise<Applied>;
  writeSync(path: string, content: string | Uint8Array, options?: Expectation): Applied;
  /** Creates a file, which must not exist. */
  create(path: string, content: string | Uint8Array): Promise<Applied>;
  /** Replaces old text, which occurs exactly once; with `all`, every occurrence. */
  edit(path: string, oldText: string, newText: string, options?: Expectation & { all?: boolean }): Promise<Applied>;
  editSync(path: string, oldText: string, newText: string, options?: Expectation & { all?: boolean }): Applied;
  delete(path: string, options?: Expectation): Promise<Applied>;
  /** Moves a file to another path, which must be free. */
  moveFile(path: string, to: string, options?: Expectation): Promise<Applied>;
  /** Makes all of these changes or none. */
  apply(changes: Change[]): Promise<Applied[]>;
  /** The hash of the turn's first read of a file. */
  initialHash(path: string): Promise<string | null>;
  /** Merges the agent's newest refused write with what is on disk. Write the content if it is clean. */
  merge(path: string): Promise<Merge>;
  /** Ends the turn. A second end does nothing. */
  end(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The tasks of a workspace. */
export class Vault {
  private constructor();
  add(task: string, text: string): Promise<Landed>;
  /** The tasks in one state; without one, all that are not done or rejected. */
  list(state?: State): Promise<Task[]>;
  /** One task, with its text as `content`. */
  get(task: string): Promise<Task & { content: string }>;
  /** Claims this task. Throws `Denied` if it cannot be claimed. */
  claim(task: string, options?: ClaimOptions): Promise<Claim>;
  /** Claims the next task. Throws `NothingToClaim` if there is none. */
  claimNext(options?: ClaimOptions): Promise<Claim>;
  /** Claims the next task and releases it: with success after the callback, as failed if the callback throws. */
  work<T>(options: ClaimOptions, callback: (claim: Claim) => T | Promise<T>): Promise<T>;
}

/**
 * An agent owns a task. A held claim lasts as long as this process keeps the object. At the end of an `await using` block, a
 * claim that was not released counts as a failed attempt.
 */
export class Claim implements AsyncDisposable {
  private constructor();
  readonly task: string;
  readonly agent: string;
  readonly claimId: string;
  /** `execute`, or `draft` if a person must approve the result. */
  readonly mode: 'execute' | 'draft';
  /** The fencing number: larger than that of every earlier claim of the task. */
  readonly epoch: number;
  readonly path: string | null;
  readonly action?: string;
  readonly leaseUntil?: string;
  /** What `tollgate task claim --json` prints. */
  readonly payload: Record<string, unknown>;
  /** Whether it was released, or is known to be lost. */
  get ended(): boolean;
  /** The text of the task. */
  text(): Promise<string>;
  /** Begins a turn of the owner, whose writes are refused (`Fenced`) once the claim is lost. */
  turn(): Promise<Turn>;
  /** From now on, this turn's writes are refused (`Fenced`) once the claim is lost. */
  fence(turn: Turn): void;
  /** Whether the claim still owns the task. */
  verify(): Promise<boolean>;
  /** Extends a lease. */
  renew(): Promise<{ task: string; claim_id: string; lease_until: string | null }>;
  /** Adds a progress note to the task. */
  progress(text: string): Promise<void>;
  /** Adds a draft to the task, for a person to approve. */
  draft(text: string): Promise<void>;
  /** Releases the task. A failure without `to` means another attempt. */
  release(result?: 'success' | 'failure', options?: { to?: State; note?: string }): Promise<Landed>;
  /** Returns the task, as if nobody had worked on it. */
  giveBack(): Promise<Landed>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The call was not carried out, and nothing was changed. */
export class TollgateError extends Error {
  readonly payload: object;
}

/** The guard refused to change or to read a file. */
export class Refused extends TollgateError {
  /** The first refusal, in five keys. */
  readonly payload: Payload;
  /** One for each refused file, sorted by path. */
  readonly payloads: Payload[];
  /** The same for the agent: what happened, and what to do. */
  readonly reports: Report[];
  get report(): Report;
}

/** The file is not what the agent last knew: read it again, redo the change, then write. */
export class StaleFile extends Refused {}
/** Another program is writing the file, or another agent is about to: try again in a moment. */
export class FileBusy extends Refused {}
/** The settings ask for a read before a write: read the file first. */
export class UnreadFile extends Refused {}
/** The last read of the file failed: read it first. */
export class UnreadableFile extends Refused {}
/** The path leads out of the workspace. */
export class OutsideWorkspace extends Refused {}
/** Agents must not change this path. */
export class ProtectedPath extends Refused {}
/** The path is a folder, a pipe or a device. */
export class NotAFile extends Refused {}
/** The file has other names, and a replacement would separate them. */
export class HardLinked extends Refused {}
/** The file is read-only. */
export class ReadOnly extends Refused {}
/** The old text of an edit is not in the file, or more than once. */
export class TextNotFound extends Refused {}
/** The turn works under a claim that is lost: stop working on that task. */
export class Fenced extends Refused {}
/** The file is in another working tree of the repository than the one in which the agent began. */
export class OtherTree extends Refused {}
/** Files that the turn has read were changed since: read them again first (`premises = "refuse"`). */
export class PremiseChanged extends Refused {}

/** The vault did not give the task, or the caller does not own it. */
export class Denied extends TollgateError {
  readonly payload: { task: string | null; reason: string; message: string; [key: string]: unknown };
  /** One word: lost, not_eligible, blocked, incomplete, none or not_owner. */
  get reason(): string;
}
/** There is no task to claim. */
export class NothingToClaim extends Denied {}
/** The claim does not own the task any more: stop working on it. */
export class NotOwner extends Denied {}

/** Something outside tollgate's rules went wrong: a full disk, a missing permission, a name that is not valid. */
export class Fault extends TollgateError {
  readonly payload: { error: string; message: string; hint?: string };
  /** A stable name, such as DISK_FULL. */
  get code(): string;
  get hint(): string | undefined;
}
/** The file, or the task, does not exist. */
export class NotFound extends Fault {}

/** A tool for an agent, without a framework. */
export interface ToolDefinition {
  name: 'read_file' | 'write_file' | 'edit_file' | 'claim_task' | 'release_task';
  description: string;
  /** JSON Schema. */
  parameters: {
    type: 'object';
    properties: Record<string, { type: 'string'; description: string; enum?: string[] }>;
    required: string[];
    additionalProperties: false;
  };
  execute(input: any): Promise<string>;
}

/**
 * The tools of one agent: one turn, and the tasks that it has claimed. Use it for one request of the agent. At its end, tasks
 * that the agent has not released are returned, and the turn ends.
 */
export class AgentTools implements AsyncDisposable {
  constructor(workspace: Workspace, agent: string);
  definitions(): ToolDefinition[];
  end(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** What the model is told of an error: for each refused file a report, which says what to do. */
export function explain(error: TollgateError): string;
