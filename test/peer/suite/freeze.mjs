import assert from 'node:assert/strict'
import { group, fails, until, collect, ids, sleep } from './suite.mjs'
import { get, serve } from './ports.mjs'

group('pause', (test) => {
  test('stops the sandbox and connecting wakes it', async (t) => {
    const sbx = await t.fresh({ metadata: { kept: 'yes' } })
    await sbx.files.write('kept.txt', 'content')
    assert.equal(await sbx.pause(), true)
    assert.equal(await sbx.isRunning(), false)
    assert.equal((await sbx.getInfo()).state, 'paused')
    assert.equal(await sbx.pause(), false)
    const again = await sbx.connect()
    assert.equal(again.sandboxId, sbx.sandboxId)
    assert.equal(await sbx.isRunning(), true)
    const info = await sbx.getInfo()
    assert.deepEqual([info.state, info.metadata], ['running', { kept: 'yes' }])
    assert.equal(await sbx.files.read('kept.txt'), 'content')
  })
  test('by its id, and another client wakes it', async (t) => {
    const sbx = await t.fresh()
    assert.equal(await t.sdk.Sandbox.pause(sbx.sandboxId), true)
    const other = await t.sdk.Sandbox.connect(sbx.sandboxId, { timeoutMs: 300_000 })
    assert.equal(await other.isRunning(), true)
    assert.equal((await sbx.commands.run('echo both')).stdout, 'both\n')
  })
  test('under its older name', async (t) => {
    const sbx = await t.fresh()
    assert.equal(await sbx.betaPause(), true)
    assert.equal((await sbx.getInfo()).state, 'paused')
  })
  test('keeps variables, processes and their memory', async (t) => {
    const sbx = await t.fresh({ envs: { VAR: 'is back' } })
    const cmd = await sbx.commands.run('n=0; while read line; do n=$((n+1)); echo "$n $line"; done', { background: true, stdin: true, timeoutMs: 0 })
    await cmd.sendStdin('before\n')
    await until('the answer', () => cmd.stdout === '1 before\n')
    await cmd.disconnect()
    await sbx.pause()
    await sbx.connect()
    assert.equal((await sbx.commands.run('echo $VAR')).stdout, 'is back\n')
    assert.ok((await sbx.commands.list()).some((p) => p.pid === cmd.pid))
    const again = await sbx.commands.connect(cmd.pid)
    await again.sendStdin('after\n')
    await again.closeStdin()
    assert.match((await again.wait()).stdout, /2 after\n$/)
  })
  test('lets what was asleep go on', async (t) => {
    const sbx = await t.fresh()
    await sbx.commands.run('sleep 1; echo done > woken', { background: true })
    assert.equal(await sbx.files.exists('woken'), false)
    await sbx.pause()
    await sbx.connect()
    await until('the process to go on', () => sbx.files.exists('woken'))
  })
  test('keeps a server serving', async (t) => {
    const sbx = await t.fresh()
    const { host } = await serve(sbx)
    assert.equal((await get(host)).status, 200)
    await sbx.pause()
    assert.equal((await get(host)).status, 502)
    await sbx.connect()
    assert.equal((await get(host)).status, 200)
  })
  test('breaks streams in words', async (t) => {
    const sbx = await t.fresh()
    const cmd = await sbx.commands.run('sleep 600', { background: true })
    await sbx.pause()
    // Of the kind that the SDK has for a sandbox that does not run, in E2B's cloud too;
    // unlike there it says that the sandbox was paused, not that it was killed.
    await fails(cmd.wait(), t.sdk.TimeoutError, /was paused/)
    await fails(sbx.commands.run('echo hi'), t.sdk.SandboxError)
    await fails(sbx.files.read('/etc/passwd'), t.sdk.SandboxError)
  })
  test('is listed', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const [a, b] = [await t.fresh({ metadata: { mark } }), await t.fresh({ metadata: { mark } })]
    await b.pause()
    const find = async (state) => ids(await collect(t.sdk.Sandbox.list({ query: { metadata: { mark }, state } })))
    assert.deepEqual(await find(['paused']), [b.sandboxId])
    assert.deepEqual(await find(['running']), [a.sandboxId])
    assert.deepEqual((await find()).sort(), [a.sandboxId, b.sandboxId].sort())
  })
  test('can be killed as it is', async (t) => {
    const sbx = await t.fresh()
    await sbx.pause()
    assert.equal(await sbx.kill(), true)
    assert.equal(await sbx.kill(), false)
    await fails(sbx.connect(), t.sdk.SandboxNotFoundError)
    await fails(sbx.getInfo(), t.sdk.SandboxNotFoundError)
  })
  test('again and again', async (t) => {
    const sbx = await t.fresh()
    for (let i = 0; i < 3; i++) {
      await sbx.commands.run(`echo ${i} >> count`)
      assert.equal(await sbx.pause(), true)
      await sbx.connect()
    }
    assert.equal(await sbx.files.read('count'), '0\n1\n2\n')
  })
  test('without memory is refused in words', async (t) => {
    const sbx = await t.fresh()
    await fails(sbx.pause({ keepMemory: false }), Error, /memory/)
    assert.equal(await sbx.isRunning(), true)
  })
  test('of nobody fails', async (t) => {
    await fails(t.sdk.Sandbox.pause('nosuchsandbox'), t.sdk.SandboxNotFoundError)
  })
})

group('pause/auto', (test) => {
  test('at the end of its time, and connecting wakes it', async (t) => {
    const sbx = await t.fresh({ timeoutMs: 10_000, lifecycle: { onTimeout: 'pause', autoResume: false } })
    await sbx.files.write('kept.txt', 'content')
    assert.deepEqual((await sbx.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    await until('it to pause', async () => (await sbx.getInfo()).state === 'paused')
    assert.equal(await sbx.isRunning(), false)
    assert.equal((await sbx.getInfo()).state, 'paused')
    await sbx.connect({ timeoutMs: 300_000 })
    assert.equal(await sbx.files.read('kept.txt'), 'content')
  })
  test('and a request to a port wakes it', async (t) => {
    const sbx = await t.fresh({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    const { host } = await serve(sbx)
    assert.equal((await get(host)).status, 200)
    await sbx.setTimeout(1_000)
    await until('it to pause', async () => (await sbx.getInfo()).state === 'paused')
    assert.equal((await get(host)).status, 200)
    assert.equal((await sbx.getInfo()).state, 'running')
  })
  test('and a command wakes it', async (t) => {
    const sbx = await t.fresh({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    await sbx.setTimeout(1_000)
    await until('it to pause', async () => (await sbx.getInfo()).state === 'paused')
    assert.equal((await sbx.commands.run('echo awake')).stdout, 'awake\n')
  })
  test('is not what happens otherwise', async (t) => {
    const sbx = await t.fresh({ timeoutMs: 10_000, lifecycle: { onTimeout: 'kill' } })
    assert.deepEqual((await sbx.getInfo()).lifecycle, { onTimeout: 'kill', autoResume: false })
    await until('its end', async () => !(await sbx.isRunning()))
    await fails(sbx.getInfo(), t.sdk.SandboxNotFoundError)
  })
  test('without memory is refused in words', async (t) => {
    await fails(t.sdk.Sandbox.create({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } }), Error, /memory/i)
  })
})

group('snapshot', (test) => {
  test('makes new sandboxes of the same state', async (t) => {
    const sbx = await t.fresh({ envs: { VAR: 'kept' } })
    await sbx.files.write('state.json', '{"step":1}')
    const snap = await sbx.createSnapshot()
    try {
      assert.ok(snap.snapshotId.length > 4)
      assert.equal(await sbx.isRunning(), true)
      await sbx.files.write('state.json', '{"step":2}')
      const [a, b] = await Promise.all([t.sdk.Sandbox.create(snap.snapshotId), t.sdk.Sandbox.create(snap.snapshotId, { envs: { OWN: 'too' }, metadata: { of: 'b' } })])
      t.after(a.sandboxId)
      t.after(b.sandboxId)
      assert.equal(new Set([a.sandboxId, b.sandboxId, sbx.sandboxId]).size, 3)
      assert.equal(await a.files.read('state.json'), '{"step":1}')
      assert.equal((await b.commands.run('echo $VAR $OWN')).stdout, 'kept too\n')
      assert.deepEqual((await b.getInfo()).metadata, { of: 'b' })
      await a.files.write('state.json', 'of a')
      assert.equal(await b.files.read('state.json'), '{"step":1}')
      assert.equal(await sbx.files.read('state.json'), '{"step":2}')
    } finally {
      await t.sdk.Sandbox.deleteSnapshot(snap.snapshotId)
    }
  })
  test('outlives its sandbox, has a name and is listed', async (t) => {
    const name = `snap-${Math.random().toString(36).slice(2)}`
    const sbx = await t.fresh()
    await sbx.files.write('note', 'here')
    const snap = await t.sdk.Sandbox.createSnapshot(sbx.sandboxId, { name })
    try {
      assert.ok(snap.names.some((n) => n.includes(name)))
      const [mine] = await collect(sbx.listSnapshots())
      assert.equal(mine.snapshotId, snap.snapshotId)
      await sbx.kill()
      assert.ok((await collect(t.sdk.Sandbox.listSnapshots({ limit: 1 }))).some((s) => s.snapshotId === snap.snapshotId))
      assert.equal((await collect(t.sdk.Sandbox.listSnapshots({ sandboxId: sbx.sandboxId })))[0].snapshotId, snap.snapshotId)
      const again = await t.sdk.Sandbox.create(name)
      t.after(again.sandboxId)
      assert.equal(await again.files.read('note'), 'here')
      assert.deepEqual(ids(await collect(t.sdk.Sandbox.list({ query: { template: name } }))), [again.sandboxId])
    } finally {
      assert.equal(await t.sdk.Sandbox.deleteSnapshot(snap.snapshotId), true)
    }
    assert.equal(await t.sdk.Sandbox.deleteSnapshot(snap.snapshotId), false)
    await assert.rejects(t.sdk.Sandbox.create(name))
  })
  test('of nobody fails', async (t) => {
    await fails(t.sdk.Sandbox.createSnapshot('nosuchsandbox'), t.sdk.SandboxNotFoundError)
    assert.equal(await t.sdk.Sandbox.deleteSnapshot('nosuchsnapshot'), false)
  })
})

group('fork', (test) => {
  test('makes an independent copy', async (t) => {
    const sbx = await t.fresh({ metadata: { of: 'first' } })
    await sbx.files.write('state', 'before')
    const cmd = await sbx.commands.run('x=42; while read l; do echo "$l $x"; done', { background: true, stdin: true, timeoutMs: 0 })
    const forks = await sbx.fork()
    assert.equal(forks.length, 1)
    const [fork] = forks
    assert.ok(fork instanceof t.sdk.Sandbox, String(fork))
    t.after(fork.sandboxId)
    assert.notEqual(fork.sandboxId, sbx.sandboxId)
    assert.notEqual(fork.envdAccessToken, sbx.envdAccessToken)
    assert.deepEqual([await sbx.isRunning(), await fork.isRunning()], [true, true])
    assert.equal(await fork.files.read('state'), 'before')
    await fork.files.write('state', 'of the fork')
    assert.equal(await sbx.files.read('state'), 'before')
    // Its processes are copied too.
    const theirs = await fork.commands.connect(cmd.pid)
    await theirs.sendStdin('in the fork\n')
    await until('the copy to answer', () => theirs.stdout === 'in the fork 42\n')
    const ours = await sbx.commands.connect(cmd.pid)
    await ours.sendStdin('in the first\n')
    await until('the first to answer', () => ours.stdout === 'in the first 42\n')
    await ours.kill()
    assert.ok((await fork.commands.list()).some((p) => p.pid === cmd.pid))
  })
  test('makes several at once', async (t) => {
    const sbx = await t.fresh()
    const forks = await t.sdk.Sandbox.fork(sbx.sandboxId, { count: 3, timeoutMs: 120_000 })
    for (const f of forks) {
      assert.ok(f instanceof t.sdk.Sandbox, String(f))
      t.after(f.sandboxId)
    }
    assert.equal(new Set([sbx.sandboxId, ...ids(forks)]).size, 4)
    // What must be random is random in each.
    const drawn = await Promise.all([sbx, ...forks].map((f) => f.commands.run(`python3 -c 'import os; print(os.urandom(16).hex())'; cat /proc/sys/kernel/random/uuid`)))
    assert.equal(new Set(drawn.map((r) => r.stdout)).size, 4)
    for (const f of forks) assert.equal((await f.commands.run('echo $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID')).stdout, `${f.sandboxId}\n${f.sandboxId}`)
  })
  test('of nobody or of the dead fails', async (t) => {
    const sbx = await t.fresh()
    await sbx.kill()
    await fails(sbx.fork(), t.sdk.SandboxNotFoundError)
    await fails(t.sdk.Sandbox.fork('nosuchsandbox'), t.sdk.SandboxNotFoundError)
    const living = await t.fresh()
    for (const count of [0, -1, 1000]) await fails(living.fork({ count }), Error, /count/)
  })
})

group('network', (test) => {
  test('can be updated, within what there is', async (t) => {
    const sbx = await t.fresh()
    await sbx.updateNetwork({})
    await sbx.updateNetwork({ denyOut: ({ allTraffic }) => [allTraffic] })
    await t.sdk.Sandbox.updateNetwork(sbx.sandboxId, { allowInternetAccess: false })
    await fails(sbx.updateNetwork({ allowOut: ['1.1.1.1'] }), Error, /network/)
    await fails(t.sdk.Sandbox.updateNetwork('nosuchsandbox', {}), t.sdk.SandboxNotFoundError)
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
})
