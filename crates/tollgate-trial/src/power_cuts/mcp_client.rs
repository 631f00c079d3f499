//! One process that serves MCP, and the agent that calls it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::machine::Result;

pub(crate) struct McpClient {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    calls: u64,
}

impl McpClient {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("`tollgate mcp`: {error}"))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("`tollgate mcp` has no streams".to_owned());
        };
        let mut client = Self { child, requests, answers: BufReader::new(answers), calls: 0 };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "power-cuts", "version": "1"},
        });
        client.request("initialize", &hello)?;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    /// Calls a tool, which must succeed.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let answer = self.request("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        if answer["isError"] == true || answer.is_null() {
            Err(format!("{tool}: {answer}"))
        } else {
            Ok(answer)
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.calls += 1;
        let id = self.calls;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            let length = self.answers.read_line(&mut line).map_err(|error| format!("{method}: {error}"))?;
            if length == 0 {
                return Err(format!("{method}: `tollgate mcp` has ended"));
            }
            let mut answer: Value =
                serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
            if answer["id"] == id {
                return Ok(answer["result"].take());
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        writeln!(self.requests, "{message}").map_err(|error| format!("`tollgate mcp`: {error}"))
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
