import assert from 'node:assert/strict'
import { group, fails, until, sleep, collect as all, ids } from './suite.mjs'

group('sandbox/create', (test) => {
  test('makes one of the default template', async (t) => {
    const sbx = await t.sdk.Sandbox.create()
    t.after(sbx.sandboxId)
    assert.match(sbx.sandboxId, /^[a-z0-9]+$/)
    assert.equal(await sbx.isRunning(), true)
    assert.equal((await sbx.commands.run('echo hi')).stdout, 'hi\n')
  })
  test('makes one of a named template', async (t) => {
    const first = await t.box()
    for (const template of ['base', (await first.getInfo()).templateId]) {
      const sbx = await t.sdk.Sandbox.create(template)
      t.after(sbx.sandboxId)
      assert.equal((await sbx.commands.run('echo hi')).stdout, 'hi\n')
      assert.equal((await sbx.getInfo()).templateId, (await first.getInfo()).templateId)
    }
  })
  test('makes none of an unknown template', async (t) => {
    await fails(t.sdk.Sandbox.create('no-such-template'), Error, /no-such-template/)
  })
  test('keeps what it is told about itself', async (t) => {
    const metadata = { one: '1', 'with space': 'ü 世界 &=?#%', empty: '' }
    const before = Date.now()
    const sbx = await t.fresh({ metadata, timeoutMs: 90_000, envs: { A: 'a' } })
    const info = await sbx.getInfo()
    assert.deepEqual([info.sandboxId, info.metadata, info.state], [sbx.sandboxId, metadata, 'running'])
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128, JSON.stringify(info))
    assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
    assert.ok(info.startedAt instanceof Date && Math.abs(info.startedAt - before) < 60_000)
    const life = info.endAt - info.startedAt
    assert.ok(life > 80_000 && life < 150_000, `lives for ${life} ms`)
    const { info: full } = { info: await t.sdk.Sandbox.getFullInfo(sbx.sandboxId) }
    assert.deepEqual(full.metadata, metadata)
  })
  test('lives for five minutes unless it is told otherwise', async (t) => {
    const sbx = await t.sdk.Sandbox.create()
    t.after(sbx.sandboxId)
    const { startedAt, endAt } = await sbx.getInfo()
    assert.ok(endAt - startedAt > 290_000 && endAt - startedAt < 400_000)
  })
  test('refuses a life that is too long', async (t) => {
    await fails(t.sdk.Sandbox.create({ timeoutMs: 25 * 3600_000 }), Error, /timeout/)
  })
  test('makes many at once', async (t) => {
    const some = await Promise.all(Array.from({ length: 6 }, (_, i) => t.fresh({ metadata: { i: String(i) } })))
    assert.equal(new Set(ids(some)).size, 6)
    const out = await Promise.all(some.map((s, i) => s.commands.run(`echo ${i} > mine; cat mine`)))
    assert.deepEqual(out.map((r) => r.stdout), some.map((_, i) => `${i}\n`))
  })
  test('gives each its own files and processes', async (t) => {
    const [a, b] = [await t.fresh(), await t.fresh()]
    await a.files.write('/tmp/only-here', 'a')
    assert.equal(await b.files.exists('/tmp/only-here'), false)
    await a.commands.run('sleep 7471', { background: true })
    assert.equal((await b.commands.run("ps -eo args | grep -c '[s]leep 7471' || true")).stdout.trim(), '0')
  })
})

group('sandbox/kill', (test) => {
  test('ends it, once', async (t) => {
    const sbx = await t.fresh()
    assert.equal(await sbx.kill(), true)
    assert.equal(await sbx.isRunning(), false)
    assert.equal(await sbx.kill(), false)
    assert.equal(await t.sdk.Sandbox.kill(sbx.sandboxId), false)
  })
  test('by its id', async (t) => {
    const sbx = await t.fresh()
    assert.equal(await t.sdk.Sandbox.kill(sbx.sandboxId), true)
    assert.ok(!ids(await all(t.sdk.Sandbox.list())).includes(sbx.sandboxId))
  })
  test('of nobody is false', async (t) => {
    assert.equal(await t.sdk.Sandbox.kill('nosuchsandbox'), false)
  })
  test('makes every call on it fail in words', async (t) => {
    const sbx = await t.fresh()
    const cmd = await sbx.commands.run('sleep 600', { background: true })
    await sbx.kill()
    const gone = /not found|not running|killed|end of life|timeout/i
    for (const call of [
      () => sbx.commands.run('echo hi'), () => sbx.commands.list(), () => sbx.commands.connect(cmd.pid), () => sbx.files.read('/etc/passwd'),
      () => sbx.files.write('x', 'y'), () => sbx.files.list('/'), () => sbx.files.makeDir('d'), () => sbx.files.exists('/etc'),
      () => sbx.commands.sendStdin(cmd.pid, 'x'), () => sbx.commands.kill(cmd.pid),
    ]) await fails(call(), t.sdk.SandboxError, gone)
    for (const call of [
      () => sbx.getInfo(), () => sbx.setTimeout(60_000), () => sbx.getMetrics(), () => t.sdk.Sandbox.connect(sbx.sandboxId),
    ]) await fails(call(), t.sdk.SandboxNotFoundError, new RegExp(sbx.sandboxId))
  })
  test('while a command runs tells so', async (t) => {
    const sbx = await t.fresh()
    const cmd = await sbx.commands.run('sleep 600', { background: true })
    await sbx.kill()
    await fails(cmd.wait(), t.sdk.TimeoutError, /killed or reached its end of life/)
  })
  test('while output streams tells so', async (t) => {
    const sbx = await t.fresh()
    let seen = 0
    const run = sbx.commands.run('yes', { onStdout: (s) => { seen += s.length } })
    run.catch(() => {})
    await until('output', () => seen > 100_000)
    await sbx.kill()
    await fails(run, t.sdk.TimeoutError, /killed or reached its end of life/)
  })
  test('while a file streams tells so', async (t) => {
    const sbx = await t.fresh()
    await sbx.commands.run('head -c 60M /dev/zero > big')
    const reader = (await sbx.files.read('big', { format: 'stream' })).getReader()
    await reader.read()
    await sbx.kill()
    await assert.rejects(async () => { for (;;) if ((await reader.read()).done) return })
  })
})

group('sandbox/timeout', (test) => {
  test('can be set shorter and longer', async (t) => {
    const sbx = await t.fresh()
    await sbx.setTimeout(60_000)
    const short = (await sbx.getInfo()).endAt
    assert.ok(short - Date.now() < 65_000)
    await t.sdk.Sandbox.setTimeout(sbx.sandboxId, 1_200_000)
    assert.ok((await sbx.getInfo()).endAt - short > 1_000_000)
  })
  test('ends the sandbox', async (t) => {
    const sbx = await t.fresh({ timeoutMs: 10_000 })
    const cmd = await sbx.commands.run('sleep 600', { background: true })
    await fails(cmd.wait(), t.sdk.TimeoutError, /killed or reached its end of life/)
    assert.equal(await sbx.isRunning(), false)
    await fails(sbx.getInfo(), t.sdk.SandboxNotFoundError)
  })
  test('that is refused changes nothing', async (t) => {
    const sbx = await t.fresh()
    const before = (await sbx.getInfo()).endAt
    await fails(sbx.setTimeout(48 * 3600_000), Error, /timeout/)
    assert.equal(+(await sbx.getInfo()).endAt, +before)
  })
})

group('sandbox/connect', (test) => {
  test('from its id gives the same sandbox', async (t) => {
    const sbx = await t.fresh()
    await sbx.files.write('note', 'left here')
    const again = await t.sdk.Sandbox.connect(sbx.sandboxId)
    assert.equal(again.sandboxId, sbx.sandboxId)
    assert.equal(await again.files.read('note'), 'left here')
    assert.equal(await again.isRunning(), true)
  })
  test('on the object itself', async (t) => {
    const sbx = await t.fresh()
    assert.equal((await sbx.connect()).sandboxId, sbx.sandboxId)
  })
  test('only ever makes its life longer', async (t) => {
    const sbx = await t.fresh({ timeoutMs: 600_000 })
    const before = (await sbx.getInfo()).endAt
    await t.sdk.Sandbox.connect(sbx.sandboxId, { timeoutMs: 1_000 })
    assert.ok((await sbx.getInfo()).endAt >= before)
    await t.sdk.Sandbox.connect(sbx.sandboxId, { timeoutMs: 1_800_000 })
    assert.ok((await sbx.getInfo()).endAt - before > 1_000_000)
  })
  test('to nobody fails', async (t) => {
    await fails(t.sdk.Sandbox.connect('nosuchsandbox'), t.sdk.SandboxNotFoundError, /nosuchsandbox/)
  })
})

group('sandbox/list', (test) => {
  test('finds by metadata', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const a = await t.fresh({ metadata: { mark, kind: 'a b&c=d%20 ü' } })
    const b = await t.fresh({ metadata: { mark, kind: 'b' } })
    const find = async (metadata) => ids(await all(t.sdk.Sandbox.list({ query: { metadata } }))).sort()
    assert.deepEqual(await find({ mark }), [a.sandboxId, b.sandboxId].sort())
    assert.deepEqual(await find({ mark, kind: 'a b&c=d%20 ü' }), [a.sandboxId])
    assert.deepEqual(await find({ mark, kind: 'c' }), [])
    const [one] = await all(t.sdk.Sandbox.list({ query: { metadata: { mark, kind: 'b' } } }))
    assert.deepEqual([one.state, one.metadata, one.templateId], ['running', { mark, kind: 'b' }, (await b.getInfo()).templateId])
    assert.ok(one.startedAt < one.endAt && one.cpuCount >= 1 && one.memoryMB >= 1)
  })
  test('goes page by page', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const some = await Promise.all(Array.from({ length: 3 }, () => t.fresh({ metadata: { mark } })))
    const p = t.sdk.Sandbox.list({ query: { metadata: { mark } }, limit: 2 })
    const first = await p.nextItems()
    assert.deepEqual([first.length, p.hasNext], [2, true])
    const resumed = t.sdk.Sandbox.list({ query: { metadata: { mark } }, limit: 2, nextToken: p.nextToken })
    const second = await p.nextItems()
    assert.deepEqual([second.length, p.hasNext], [1, false])
    assert.deepEqual(ids([...first, ...second]).sort(), ids(some).sort())
    assert.deepEqual(ids(await resumed.nextItems()), ids(second))
    await fails(p.nextItems(), Error)
  })
  test('finds by state', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const sbx = await t.fresh({ metadata: { mark } })
    const find = async (state) => ids(await all(t.sdk.Sandbox.list({ query: { metadata: { mark }, state } })))
    assert.deepEqual(await find(['running']), [sbx.sandboxId])
    assert.deepEqual(await find(['running', 'paused']), [sbx.sandboxId])
    assert.deepEqual(await find(['paused']), [])
  })
  test('forgets the dead', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const sbx = await t.fresh({ metadata: { mark } })
    await sbx.kill()
    assert.deepEqual(await all(t.sdk.Sandbox.list({ query: { metadata: { mark } } })), [])
  })
})

group('sandbox/abort', (test) => {
  test('before the call', async (t) => {
    const signal = AbortSignal.abort()
    const sbx = await t.box()
    for (const call of [
      () => t.sdk.Sandbox.create({ signal }), () => t.sdk.Sandbox.kill(sbx.sandboxId, { signal }), () => t.sdk.Sandbox.getInfo(sbx.sandboxId, { signal }),
      () => t.sdk.Sandbox.list().nextItems({ signal }), () => sbx.commands.run('echo', { signal }), () => sbx.files.read('/etc/passwd', { signal }),
      () => sbx.files.write('x', 'y', { signal }), () => sbx.commands.list({ signal }),
    ]) await assert.rejects(call())
    assert.equal(await sbx.isRunning(), true)
  })
  test('while a sandbox boots leaves none behind', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    for (const ms of [1, 20, 60, 150]) {
      const stop = new AbortController()
      const create = t.sdk.Sandbox.create({ signal: stop.signal, metadata: { mark } })
      setTimeout(() => stop.abort(), ms)
      await create.then((s) => s.kill(), () => {})
    }
    await until('none', async () => (await all(t.sdk.Sandbox.list({ query: { metadata: { mark } } }))).length === 0)
  })
  test('by the time limit of a request', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`mkfifo ${t.dir}`)
    // The upload never ends by itself.
    const endless = new ReadableStream({ async pull(c) { c.enqueue(new Uint8Array(1 << 10)); await sleep(50) } })
    await assert.rejects(sbx.files.write('endless', endless, { signal: AbortSignal.timeout(500) }))
    await assert.rejects(t.sdk.Sandbox.create({ requestTimeoutMs: 1 }))
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
  test('in the middle of a command leaves the sandbox well', async (t) => {
    const sbx = await t.box()
    for (let i = 0; i < 20; i++) {
      const stop = new AbortController()
      const run = sbx.commands.run('yes | head -c 5000000', { signal: stop.signal })
      setTimeout(() => stop.abort(), i * 4)
      await run.catch(() => {})
    }
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
})

group('sandbox/metrics', (test) => {
  test('tell of memory, processors and disk', async (t) => {
    const sbx = await t.box()
    const metrics = await until('a sample', async () => { const m = await sbx.getMetrics(); return m.length > 0 && m })
    const m = metrics.at(-1)
    assert.ok(m.timestamp instanceof Date && Math.abs(m.timestamp - Date.now()) < 120_000, JSON.stringify(m))
    assert.ok(m.cpuCount >= 1 && m.cpuUsedPct >= 0, JSON.stringify(m))
    assert.ok(m.memTotal > 100e6 && m.memUsed > 0 && m.memUsed < m.memTotal, JSON.stringify(m))
    assert.ok(m.diskTotal > 0 && m.diskUsed >= 0, JSON.stringify(m))
    assert.ok((await t.sdk.Sandbox.getMetrics(sbx.sandboxId)).length > 0)
  })
})
