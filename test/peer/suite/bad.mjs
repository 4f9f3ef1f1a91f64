import assert from 'node:assert/strict'
import { group, fails, until, sleep, engine } from './suite.mjs'

const key = process.env.E2B_API_KEY

group('bad/key', (test) => {
  test('wrong is refused by every call', async (t) => {
    const sbx = await t.box()
    const apiKey = 'e2b_ffffffffffffffffffffffffffffffffffffffff'
    const S = t.sdk.Sandbox
    for (const call of [
      () => S.create({ apiKey }), () => S.connect(sbx.sandboxId, { apiKey }), () => S.kill(sbx.sandboxId, { apiKey }), () => S.getInfo(sbx.sandboxId, { apiKey }),
      () => S.list({ apiKey }).nextItems(), () => S.setTimeout(sbx.sandboxId, 1000, { apiKey }), () => S.getMetrics(sbx.sandboxId, { apiKey }),
      () => S.pause(sbx.sandboxId, { apiKey }), () => S.createSnapshot(sbx.sandboxId, { apiKey }), () => S.listSnapshots({ apiKey }).nextItems(),
      () => S.updateNetwork(sbx.sandboxId, {}, { apiKey }), () => S.kill('nosuchsandbox', { apiKey }),
    ]) await fails(call(), t.sdk.AuthenticationError, /key/i)
    assert.equal(await sbx.isRunning(), true)
  })
  test('almost right is refused', async (t) => {
    for (const apiKey of [key + '0', key.slice(0, -1), key.toUpperCase().replace('E2B_', 'e2b_').replace(/0/g, 'A')]) {
      await assert.rejects(t.sdk.Sandbox.list({ apiKey, validateApiKey: false }).nextItems())
    }
  })
  test('as the daemon\'s token opens nothing', async (t) => {
    const sbx = await t.box()
    for (const token of [key, '', 'x'.repeat(5000)]) {
      const res = await fetch(`${engine}/files?path=/etc/passwd`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'X-Access-Token': token } })
      assert.equal(res.status, 401)
      await res.text()
    }
    const res = await fetch(`${engine}/v2/sandboxes`, { headers: { 'X-API-KEY': sbx.envdAccessToken } })
    assert.equal(res.status, 401)
    await res.text()
  })
})

// stolen is a client of a sandbox with a token of the caller's choice.
function stolen(t, sbx, token) {
  return new t.sdk.Sandbox({ sandboxId: sbx.sandboxId, envdVersion: '0.6.4', envdAccessToken: token, sandboxDomain: process.env.E2B_DOMAIN })
}

group('bad/token', (test) => {
  const calls = (sbx) => [
    () => sbx.commands.run('echo hi'), () => sbx.commands.list(), () => sbx.commands.kill(1), () => sbx.commands.connect(2), () => sbx.commands.sendStdin(2, 'x'),
    () => sbx.files.read('/etc/passwd'), () => sbx.files.write('/tmp/x', 'x'), () => sbx.files.list('/'), () => sbx.files.exists('/etc'), () => sbx.files.getInfo('/etc'),
    () => sbx.files.makeDir('/tmp/y'), () => sbx.files.remove('/tmp/x'), () => sbx.files.rename('/tmp/x', '/tmp/y'), () => sbx.files.watchDir('/tmp', () => {}),
    () => sbx.pty.create({ cols: 80, rows: 24, onData: () => {} }),
  ]
  test('missing or wrong is refused by every call', async (t) => {
    const sbx = await t.box()
    for (const token of [undefined, 'x'.repeat(40)]) {
      for (const call of calls(stolen(t, sbx, token))) await fails(call(), t.sdk.AuthenticationError, /token|401/)
    }
  })
  test('of another sandbox is refused by every call', async (t) => {
    const [sbx, other] = [await t.box(), await t.fresh()]
    for (const call of calls(stolen(t, sbx, other.envdAccessToken))) await fails(call(), t.sdk.AuthenticationError, /token|401/)
  })
  test('does not open another sandbox by a signature', async (t) => {
    const [sbx, other] = [await t.box(), await t.fresh()]
    await sbx.files.write('/tmp/mine', 'mine')
    const url = new URL(await stolen(t, sbx, other.envdAccessToken).downloadUrl('/tmp/mine'))
    // Without headers it is the other's own file, which is not there; with
    // the headers of this one it is nobody's.
    assert.equal((await fetch(url)).status, 404)
    assert.equal((await fetch(url, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983' } })).status, 401)
    assert.equal((await fetch(await sbx.downloadUrl('/tmp/mine'))).status, 200)
  })
})

group('bad/id', (test) => {
  test('that guesses at others\' finds nothing', async (t) => {
    const sbx = await t.box()
    const id = sbx.sandboxId
    for (const guess of [id.slice(0, -1), id + '0', id.slice(0, 5), id.toUpperCase(), `${id} `, `${id}%00`, `../sandboxes/${id}`, `${id}/../${id}`, '*', '.', '..', '%', 'ü', 'x'.repeat(3000)]) {
      await assert.rejects(t.sdk.Sandbox.getInfo(guess), `getInfo of ${guess.slice(0, 60)}`)
      const killed = await t.sdk.Sandbox.kill(guess).catch(() => false)
      assert.equal(killed, false, guess)
      await assert.rejects(t.sdk.Sandbox.connect(guess))
    }
    assert.equal(await sbx.isRunning(), true)
  })
  test('in the headers finds nothing', async (t) => {
    const sbx = await t.box()
    const id = sbx.sandboxId
    for (const guess of [id.slice(0, -1), id + '0', 'nosuchsandbox', 'x'.repeat(3000), '../' + id]) {
      const res = await fetch(`${engine}/files?path=/etc/passwd`, { headers: { 'E2b-Sandbox-Id': guess, 'X-Access-Token': sbx.envdAccessToken } })
      const body = await res.json()
      assert.deepEqual([res.status, body.code], [502, 502])
    }
  })
})

group('bad/input', (test) => {
  test('to create is refused in words', async (t) => {
    const post = async (body) => {
      const res = await fetch(`${engine}/v2/sandboxes`, { method: 'POST', headers: { 'X-API-KEY': key, 'Content-Type': 'application/json' }, body })
      const answer = await res.json()
      assert.equal(answer.code, res.status)
      assert.ok(answer.message.length > 5)
      return res.status
    }
    for (const body of ['', '{', '[]', 'null', '{"templateID":1}', '{"templateID":"base","timeout":"x"}', '{"templateID":"base","timeout":-1}', '{"templateID":"base","metadata":[]}', '{"templateID":"base","envVars":{"A":1}}']) {
      assert.equal(await post(body), 400, body)
    }
    assert.equal(await post(`{"templateID":"base","metadata":{"x":"${'y'.repeat(2 << 20)}"}}`), 413)
  })
  test('to the daemon is refused and does no harm', async (t) => {
    const sbx = await t.box()
    const headers = { 'E2b-Sandbox-Id': sbx.sandboxId, 'X-Access-Token': sbx.envdAccessToken }
    const call = async (type, path, body) => {
      const res = await fetch(`${engine}${path}`, { method: 'POST', headers: { ...headers, 'Content-Type': type, 'Connect-Protocol-Version': '1' }, body })
      await res.arrayBuffer()
      return res.status
    }
    const frame = (flags, size, body) => Buffer.concat([Buffer.from([flags, size >>> 24, size >>> 16, size >>> 8, size]), Buffer.from(body)])
    for (const body of [frame(0, 2, '{}'), frame(0, 200, '{}'), frame(0, 0xffffffff, '{}'), frame(255, 1, 'x'), frame(1, 3, 'abc'), frame(0, 9, '{"procses'), Buffer.alloc(0), Buffer.alloc(100, 255)]) {
      for (const type of ['application/connect+json', 'application/connect+proto']) {
        const status = await call(type, '/process.Process/Start', body)
        assert.ok(status < 600, String(status)) // a stream's errors come in a 200
      }
    }
    for (const type of ['application/json', 'application/proto', 'text/plain', '']) {
      for (const body of ['', '{', '\xff\xff\xff', '{"path":5}', '['.repeat(20_000)]) {
        for (const path of ['/filesystem.Filesystem/Stat', '/process.Process/SendInput', '/process.Process/NoSuchMethod', '/filesystem.Filesystem/']) {
          const status = await call(type, path, body)
          assert.ok(status >= 200 && status < 600, String(status))
        }
      }
    }
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
  test('of an upload that is no upload is refused', async (t) => {
    const sbx = await t.box()
    const post = async (type, body, query = '') => {
      const res = await fetch(`${engine}/files?username=user${query}`, { method: 'POST', headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'X-Access-Token': sbx.envdAccessToken, ...type }, body })
      const answer = await res.json()
      assert.equal(answer.code, res.status)
      return res.status
    }
    const form = { 'Content-Type': 'multipart/form-data; boundary=B' }
    assert.equal(await post({ 'Content-Type': 'text/plain' }, 'x', '&path=/tmp/bad'), 400)
    assert.equal(await post(form, 'no boundary at all', '&path=/tmp/bad'), 400)
    assert.equal(await post(form, '--B\r\nContent-Disposition: form-data; name="file"; filename="/tmp/bad"\r\n\r\ncut off'), 400)
    assert.equal(await post(form, '--B\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--B--\r\n'), 400)
    assert.equal(await post({ 'Content-Type': 'application/octet-stream' }, 'x'), 400)
    assert.equal(await post({ 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'gzip' }, 'not gzip', '&path=/tmp/bad'), 400)
    assert.equal(await post({ 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'br' }, 'x', '&path=/tmp/bad'), 415)
  })
})

group('bad/client', (test) => {
  test('that goes in the middle of an upload leaves no half of it unnoticed', async (t) => {
    const sbx = await t.box()
    const stop = new AbortController()
    let sent = 0
    const body = new ReadableStream({ async pull(c) { await sleep(1); c.enqueue(new Uint8Array(64 << 10)); if ((sent += 64 << 10) > 4 << 20) stop.abort() } })
    await assert.rejects(sbx.files.write(t.dir, body, { signal: stop.signal }))
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
  test('that never reads does not hold up the others', async (t) => {
    const sbx = await t.box()
    const res = await fetch(`${engine}/process.Process/Start`, {
      method: 'POST', headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'X-Access-Token': sbx.envdAccessToken, 'Content-Type': 'application/connect+json' },
      body: (() => { const m = Buffer.from(JSON.stringify({ process: { cmd: '/bin/sh', args: ['-c', 'yes | head -c 50000000'] }, stdin: false })); const b = Buffer.alloc(5 + m.length); b.writeUInt32BE(m.length, 1); m.copy(b, 5); return b })(),
    })
    assert.equal(res.status, 200)
    for (let i = 0; i < 10; i++) assert.equal((await sbx.commands.run(`echo ${i}`)).stdout, `${i}\n`)
    await res.body.cancel()
  })
  test('of ten thousand lines a second and no reader does no harm', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('for i in $(seq 10000); do echo line $i; done; read x; echo after', { background: true, stdin: true })
    await cmd.disconnect()
    await cmd.sendStdin('\n')
    await until('the end', async () => !(await sbx.commands.list()).some((p) => p.pid === cmd.pid))
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
})
