// Runs the suite with the SDK that the first argument names, and tells on
// standard output, a JSON object a line, which cases there are and how each
// ended. Further arguments are the beginnings of the names of cases to run.
import { readFileSync } from 'node:fs'
import { cases, perform } from './suite.mjs'

const [name, ...only] = process.argv.slice(2)
const sdk = await import(name)
const { version } = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)))

for (const part of process.env.PEER_PARTS.split(' ')) await import(`./${part}.mjs`)

const tell = (line) => process.stdout.write(JSON.stringify(line) + '\n')

// What a case leaves unhandled is that case's fault, and which one it was is
// not known: the run ends.
process.on('unhandledRejection', (err) => {
  tell({ broken: `unhandled rejection: ${err?.stack ?? err}` })
  process.exit(1)
})

const chosen = cases.filter((c) => only.length === 0 || only.some((o) => c.name.startsWith(o)))
tell({ plan: chosen.map((c) => c.name) })

const queue = [...chosen]
async function worker() {
  for (let c = queue.shift(); c; c = queue.shift()) {
    const begun = performance.now()
    const error = await perform(sdk, version, c)
    tell({ case: c.name, ms: Math.round(performance.now() - begun), error })
  }
}
await Promise.all(Array.from({ length: 8 }, worker))

for (const g of new Set(chosen.map((c) => c.group))) {
  if (g.box) await (await g.box).kill()
}
tell({ done: true })
// The SDK's idle connections would keep the process for a while.
process.exit(0)
