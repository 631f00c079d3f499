// Asks tollgate before and after each tool: `tollgate hook opencode`.
// Written by `tollgate init --host opencode`; `tollgate init --host opencode --remove` removes it.
import { spawn } from "node:child_process"

// Longer than the deadline of tollgate itself, so only a process that hangs reaches it.
const PATIENCE_MS = 10_000
const WRITES = new Set(["write", "edit", "multiedit", "apply_patch", "patch", "bash", "background_process"])

const ask = (payload) =>
  new Promise((resolve) => {
    const child = spawn("tollgate", ["hook", "opencode"], { stdio: ["pipe", "pipe", "ignore"] })
    let text = ""
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS)
    const end = (answer) => {
      clearTimeout(timer)
      resolve(answer)
    }
    // On a machine without tollgate nothing is blocked.
    child.on("error", (error) => end(error.code === "ENOENT" ? {} : { died: String(error) }))
    child.on("close", (code) => {
      if (code !== 0) return end({ died: `it ended with ${code}` })
      try {
        end(text.trim() ? JSON.parse(text) : {})
      } catch {
        end({ died: "its answer is not JSON" })
      }
    })
    child.stdout.on("data", (chunk) => (text += chunk))
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify({ program: "opencode", ...payload }))
  })

export const Tollgate = async ({ directory }) => ({
  "chat.message": async (input) => {
    await ask({ hook: "chat.message", directory, input: { sessionID: input.sessionID } })
  },
  "tool.execute.before": async (input, output) => {
    const answer = await ask({ hook: "tool.execute.before", directory, input, output: { args: output.args } })
    if (answer.deny) throw new Error(answer.deny)
    if (answer.args) Object.assign(output.args, answer.args)
    if (answer.died && WRITES.has(input.tool)) {
      throw new Error(`the tollgate hook crashed (${answer.died}); this write was blocked; see: tollgate doctor`)
    }
  },
  "tool.execute.after": async (input, output) => {
    const answer = await ask({ hook: "tool.execute.after", directory, input, output })
    if (answer.note && output) output.output = `${output.output ?? ""}\n${answer.note}`
  },
  event: async ({ event }) => {
    if (event.type === "session.idle" || event.type === "session.deleted") {
      const sessionID = event.properties?.sessionID ?? event.properties?.info?.id
      await ask({ hook: event.type, directory, input: { sessionID } })
    }
  },
})
