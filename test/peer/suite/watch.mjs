import assert from 'node:assert/strict'
import { group, fails, until, later, sleep } from './suite.mjs'

// watch collects what happens in a folder.
async function watch(sbx, dir, opts = {}) {
  const events = []
  const end = later()
  const handle = await sbx.files.watchDir(dir, (e) => { events.push(e) }, { timeoutMs: 120_000, onExit: (err) => end.resolve(err ?? 'clean'), ...opts })
  const saw = (type, name) => events.find((e) => e.type === type && e.name === name)
  return { handle, events, end: end.promise, saw, sees: (type, name) => until(`${type} of ${name}, saw ${JSON.stringify(events)}`, () => saw(type, name)) }
}

group('watch', (test) => {
  async function folder(t) {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/here.txt`, 'first')
    await sbx.files.write(`${t.dir}/sub/here.txt`, 'first')
    return sbx
  }
  test('tells of a write', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir)
    await sbx.files.write(`${t.dir}/here.txt`, 'second')
    await w.sees('write', 'here.txt')
    await w.handle.stop()
    await w.end
  })
  test('tells of all that can happen', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir)
    await sbx.files.write(`${t.dir}/new.txt`, 'x')
    await w.sees('create', 'new.txt')
    await w.sees('write', 'new.txt')
    await sbx.commands.run(`chmod 600 ${t.dir}/new.txt`)
    await w.sees('chmod', 'new.txt')
    await sbx.files.rename(`${t.dir}/new.txt`, `${t.dir}/other.txt`)
    await w.sees('rename', 'new.txt')
    await w.sees('create', 'other.txt')
    await sbx.files.remove(`${t.dir}/other.txt`)
    await w.sees('remove', 'other.txt')
    await sbx.files.makeDir(`${t.dir}/folder`)
    await w.sees('create', 'folder')
    await w.handle.stop()
  })
  test('tells of what programs inside do', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir)
    await sbx.commands.run(`cd ${t.dir} && for i in 1 2 3; do echo $i > by-$i; done && rm by-2`)
    for (const i of [1, 2, 3]) await w.sees('create', `by-${i}`)
    await w.sees('remove', 'by-2')
    await w.handle.stop()
  })
  test('does not look below, unless it is told to', async (t) => {
    const sbx = await folder(t)
    const flat = await watch(sbx, t.dir)
    const deep = await watch(sbx, t.dir, { recursive: true })
    await sbx.files.write(`${t.dir}/sub/here.txt`, 'second')
    await deep.sees('write', 'sub/here.txt')
    await sbx.files.write(`${t.dir}/last.txt`, '')
    await flat.sees('create', 'last.txt')
    assert.ok(!flat.events.some((e) => e.name.includes('sub/')))
    await Promise.all([flat.handle.stop(), deep.handle.stop()])
  })
  test('follows folders that come later', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir, { recursive: true })
    await sbx.files.makeDir(`${t.dir}/a/b`)
    await w.sees('create', 'a')
    await w.sees('create', 'a/b')
    await sbx.files.write(`${t.dir}/a/b/f.txt`, 'x')
    await w.sees('write', 'a/b/f.txt')
    await w.handle.stop()
  })
  test('describes what it tells of when asked', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir, { includeEntry: true })
    await sbx.files.write(`${t.dir}/new.txt`, 'twelve bytes')
    const { entry } = await w.sees('write', 'new.txt')
    assert.deepEqual([entry.name, entry.type, entry.path, entry.owner], ['new.txt', 'file', `/home/user/${t.dir}/new.txt`, 'user'])
    const plain = await watch(sbx, t.dir)
    await sbx.files.write(`${t.dir}/plain.txt`, 'x')
    assert.equal((await plain.sees('write', 'plain.txt')).entry, undefined)
    await Promise.all([w.handle.stop(), plain.handle.stop()])
  })
  test('is quiet when it was stopped', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir)
    const other = await watch(sbx, t.dir)
    await w.handle.stop()
    await w.end
    const told = w.events.length
    await sbx.files.write(`${t.dir}/after.txt`, 'x')
    await other.sees('create', 'after.txt')
    assert.equal(w.events.length, told)
    await other.handle.stop()
  })
  test('waits for handlers that take their time', async (t) => {
    const sbx = await folder(t)
    let busy = 0, most = 0, done = 0
    const handle = await sbx.files.watchDir(t.dir, async () => { most = Math.max(most, ++busy); await sleep(20); busy--; done++ })
    for (let i = 0; i < 5; i++) await sbx.files.write(`${t.dir}/f${i}`, 'x')
    await until('all', () => done >= 10)
    assert.equal(most, 1)
    await handle.stop()
  })
  test('keeps a burst', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir)
    await sbx.commands.run(`cd ${t.dir} && touch $(seq -f burst-%g 1000)`)
    await until('all of the burst', () => new Set(w.events.filter((e) => e.type === 'create').map((e) => e.name)).size >= 1000)
    await w.handle.stop()
  })
  test('ends at its time limit and says so', async (t) => {
    const sbx = await folder(t)
    const w = await watch(sbx, t.dir, { timeoutMs: 6_000 })
    const err = await w.end
    assert.ok(err instanceof t.sdk.TimeoutError, String(err))
  })
  test('ends with the sandbox and says so', async (t) => {
    const sbx = await t.fresh()
    const w = await watch(sbx, '/home/user')
    await sbx.kill()
    const err = await w.end
    assert.ok(err instanceof t.sdk.TimeoutError, String(err))
    assert.match(err.message, /killed or reached its end of life/)
  })
  test('of what is not there fails', async (t) => {
    await fails((await t.box()).files.watchDir('not-there', () => {}), t.sdk.FileNotFoundError)
  })
  test('of a file fails', async (t) => {
    const sbx = await folder(t)
    await fails(sbx.files.watchDir(`${t.dir}/here.txt`, () => {}), t.sdk.SandboxError)
  })
  test('of what the user may not see fails', async (t) => {
    const sbx = await t.box()
    await fails(sbx.files.watchDir('/root', () => {}), t.sdk.SandboxError, /permission|denied/)
    const w = await watch(sbx, '/root', { user: 'root' })
    await w.handle.stop()
  })
  test('of nobody fails', async (t) => {
    await fails((await t.box()).files.watchDir('/home', () => {}, { user: 'nobody-like-this' }), t.sdk.AuthenticationError)
  })
})
