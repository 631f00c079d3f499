#!/usr/bin/env node
// Runs the command `tollgate` of this platform, with the same arguments, streams and signals.
'use strict';
const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const { join } = require('node:path');

const command = join(__dirname, '..', 'native', `${process.platform}-${process.arch}`, 'tollgate');
const child = spawn(command, process.argv.slice(2), { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']) {
  // A terminal sends its interrupts to the command as well, and the command decides what to do with them.
  const isFromTerminal = process.stdin.isTTY && ['SIGINT', 'SIGQUIT'].includes(signal);
  process.on(signal, () => isFromTerminal || child.kill(signal));
}
child.on('error', (error) => {
  console.error(`tollgate does not run on ${process.platform}-${process.arch}: ${error.message}`);
  process.exit(126);
});
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
