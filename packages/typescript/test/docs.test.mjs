// Every TypeScript block of docs/reference/typescript.md compiles and runs.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Workspace } from 'tollgate-guard';
import { folder } from './world.mjs';

// The tests run in a folder in which the package is installed.
const installed = dirname(dirname(fileURLToPath(import.meta.url)));
const { REPOSITORY } = process.env;

function blocks() {
  return ['docs/reference/typescript.md'].flatMap((page) => {
    const text = readFileSync(join(REPOSITORY, page), 'utf8');
    const found = [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, block]) => block);
    assert.ok(found.length > 0, page);
    return found.map((block, number) => [`${basename(page, '.md').toLowerCase()}_${number}`, block]);
  });
}

test('the blocks compile and run', async (t) => {
  const docs = join(installed, 'docs');
  rmSync(docs, { recursive: true, force: true });
  mkdirSync(docs);
  for (const [name, block] of blocks()) writeFileSync(join(docs, `${name}.mts`), block);
  const compilerOptions = {
    module: 'nodenext', target: 'es2022', lib: ['es2023', 'esnext.disposable', 'dom'], types: ['node'], strict: true,
    // The declarations of the frameworks are not ours.
    skipLibCheck: true,
    outDir: 'out', rootDir: '.',
  };
  writeFileSync(join(docs, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.mts'] }));
  const compiled = spawnSync(join(installed, 'node_modules/.bin/tsc'), ['-p', docs], { encoding: 'utf8' });
  assert.equal(compiled.status, 0, compiled.stdout);
  for (const [name] of blocks()) {
    await t.test(name, async (t) => {
      const root = folder(t);
      writeFileSync(join(root, 'notes.md'), '# Notes\n');
      await (await new Workspace(root).vault({ create: true })).add('water-the-plants', '# Water the plants\n');
      const ran = spawnSync(process.execPath, [join(docs, 'out', `${name}.mjs`)], { cwd: root, encoding: 'utf8' });
      // A failed `console.assert` only says so.
      assert.deepEqual([ran.status, ran.stderr], [0, '']);
    });
  }
});

test('the declarations of the package have no errors', () => {
  const declarations = ['index.d.ts', 'index.d.mts', 'vercel-ai.d.mts', 'openai-agents.d.mts'];
  const source = join(installed, 'types');
  rmSync(source, { recursive: true, force: true });
  mkdirSync(source);
  for (const file of declarations) {
    const text = readFileSync(join(installed, 'node_modules/tollgate-guard', file), 'utf8');
    // Under another name, so that `skipLibCheck` does not skip them.
    writeFileSync(join(source, file.replace('.d.', '.')), text.replaceAll(/^export (class|function)/gm, 'export declare $1'));
  }
  const compilerOptions = {
    module: 'nodenext', target: 'es2022', lib: ['es2023', 'esnext.disposable', 'dom'], types: ['node'], strict: true,
    skipLibCheck: true, noEmit: true,
  };
  writeFileSync(join(source, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*'] }));
  execFileSync(join(installed, 'node_modules/.bin/tsc'), ['-p', source], { stdio: 'pipe' });
});
