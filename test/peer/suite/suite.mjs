// The frame of the suite: cases are registered by the modules beside this one,
// run.mjs runs them. A case gets a context of its own:
//
//   sdk      what the SDK's package exports
//   version  the package's version
//   box()    the group's sandbox, shared by its cases: they keep to their dir
//   fresh()  a sandbox of the case's own, killed when the case is over
//   dir      the name of a folder that no other case uses, relative to home
//   engine   URL of the engine
import assert from 'node:assert/strict'

export const cases = []

export function group(name, register) {
  const g = { name, box: undefined }
  register((title, run) => cases.push({ name: `${name}/${title}`, group: g, run }))
}

export const engine = process.env.E2B_API_URL
export const domain = process.env.E2B_DOMAIN

// No case measures time: this only has to be longer than a busy machine needs.
const patience = 120_000

let made = 0

export class Context {
  constructor(sdk, version, c) {
    this.sdk = sdk
    this.version = version
    this.case = c
    this.engine = engine
    this.dir = `case-${++made}`
    this.own = []
  }

  box() {
    const g = this.case.group
    g.box ??= this.sdk.Sandbox.create({ timeoutMs: 600_000, metadata: { group: g.name } })
    return g.box
  }

  async fresh(opts = {}) {
    const sbx = await this.sdk.Sandbox.create({ timeoutMs: 600_000, ...opts })
    this.own.push(sbx.sandboxId)
    return sbx
  }

  // after notes a sandbox that the case made in another way.
  after(id) {
    this.own.push(id)
  }

  async end() {
    for (const id of this.own) await this.sdk.Sandbox.kill(id)
  }
}

// perform runs one case and returns why it failed, or undefined.
export async function perform(sdk, version, c) {
  const t = new Context(sdk, version, c)
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('the case does not end')), patience)
  })
  try {
    await Promise.race([c.run(t), late])
  } catch (err) {
    return err?.stack ?? String(err)
  } finally {
    clearTimeout(timer)
    await t.end().catch((err) => console.error(`${c.name}: cannot kill its sandboxes: ${err}`))
  }
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

// until waits for something that comes by itself.
export async function until(what, f) {
  for (const end = Date.now() + patience / 2; Date.now() < end; await sleep(20)) {
    const got = await f()
    if (got) return got
  }
  assert.fail(`waited in vain: ${what}`)
}

// fails expects an error of a class whose message matches.
export async function fails(promise, kind, message) {
  let got
  try {
    got = await promise
  } catch (err) {
    assert.ok(err instanceof kind, `expected ${kind.name}, got ${err?.name}: ${err?.message}`)
    if (message) assert.match(err.message, message)
    return err
  }
  assert.fail(`expected ${kind.name}, but it succeeded with ${JSON.stringify(got)?.slice(0, 200)}`)
}

// later is a promise with its ends in hand.
export function later() {
  const l = {}
  l.promise = new Promise((resolve, reject) => Object.assign(l, { resolve, reject }))
  return l
}

// collect gives what all pages of a paginator hold.
export async function collect(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...await paginator.nextItems())
  return found
}

export const ids = (sandboxes) => sandboxes.map((s) => s.sandboxId)
