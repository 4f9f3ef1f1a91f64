import assert from 'node:assert/strict'
import http from 'node:http'
import { Agent, WebSocket, fetch } from 'undici'
import { group, until, engine } from './suite.mjs'

// In real life a name server answers for every name below the domain.
const home = new Agent({ connect: { lookup: (_, opts, done) => done(null, opts.all ? [{ address: '127.0.0.1', family: 4 }] : '127.0.0.1', 4) } })

// get asks a port of a sandbox by the name that the SDK gives it.
export async function get(host, path = '/', opts = {}) {
  const res = await fetch(`http://${host}${path}`, { dispatcher: home, ...opts })
  return { status: res.status, headers: res.headers, text: await res.text() }
}

const echo = `
import { createServer } from 'node:http'
import { createHash } from 'node:crypto'
const server = createServer((req, res) => {
  const parts = []
  req.on('data', (p) => parts.push(p))
  req.on('end', () => {
    const { pathname, searchParams } = new URL(req.url, 'http://x')
    if (pathname === '/events') {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      let n = 0
      const timer = setInterval(() => { res.write('data: ' + ++n + '\\n\\n') }, 30)
      res.on('close', () => clearInterval(timer))
      return
    }
    if (pathname === '/big') return res.end(Buffer.alloc(Number(searchParams.get('n')), 'x'))
    if (pathname === '/status') { res.writeHead(Number(searchParams.get('code')), { location: '/else', 'set-cookie': ['a=1', 'b=2'] }); return res.end('body') }
    res.setHeader('x-mine', 'kept')
    res.end(JSON.stringify({ method: req.method, url: req.url, headers: req.headers, body: Buffer.concat(parts).toString() }))
  })
})
// A WebSocket server of one kind of frame: it sends back what it gets.
server.on('upgrade', (req, socket) => {
  const accept = createHash('sha1').update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n')
  let held = Buffer.alloc(0)
  socket.on('data', (d) => {
    held = Buffer.concat([held, d])
    for (;;) {
      if (held.length < 6) return
      let size = held[1] & 127, at = 2
      if (size === 126) { if (held.length < 8) return; size = held.readUInt16BE(2); at = 4 }
      else if (size === 127) { if (held.length < 14) return; size = Number(held.readBigUInt64BE(2)); at = 10 }
      if (held.length < at + 4 + size) return
      const mask = held.subarray(at, at + 4)
      const body = Buffer.from(held.subarray(at + 4, at + 4 + size))
      for (let i = 0; i < size; i++) body[i] ^= mask[i & 3]
      const head = Buffer.from(held.subarray(0, at))
      head[1] &= 127
      socket.write(Buffer.concat([head, body]))
      held = held.subarray(at + 4 + size)
    }
  })
  socket.on('error', () => {})
})
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('up'))
`

let port = 20_000

// serve starts the server above on a port that no other case uses.
export async function serve(sbx) {
  await sbx.files.write('/tmp/echo.mjs', echo)
  const at = ++port
  const up = { said: '' }
  await sbx.commands.run(`node /tmp/echo.mjs ${at}`, { background: true, timeoutMs: 0, onStdout: (s) => { up.said += s } })
  await until('the server', () => up.said.includes('up'))
  return { at, host: sbx.getHost(at) }
}

group('ports/http', (test) => {
  test('by the name that the SDK gives', async (t) => {
    const sbx = await t.box()
    const { at, host } = await serve(sbx)
    assert.equal(host, `${at}-${sbx.sandboxId}.${process.env.E2B_DOMAIN}`)
    const r = await get(host, '/path/a%20b?q=1&r=%2F', { method: 'POST', body: 'payload', headers: { 'x-own': 'yes' } })
    assert.equal(r.status, 200)
    assert.equal(r.headers.get('x-mine'), 'kept')
    const seen = JSON.parse(r.text)
    assert.deepEqual([seen.method, seen.url, seen.body, seen.headers['x-own'], seen.headers.host], ['POST', '/path/a%20b?q=1&r=%2F', 'payload', 'yes', host])
  })
  test('by python as the documentation shows', async (t) => {
    const sbx = await t.fresh()
    await sbx.files.write('site/index.html', '<h1>hello</h1>')
    const cmd = await sbx.commands.run('python3 -m http.server 8000', { background: true, cwd: 'site' })
    const r = await until('the server', async () => { const r = await get(sbx.getHost(8000)); return r.status === 200 && r })
    assert.equal(r.text, '<h1>hello</h1>')
    await cmd.kill()
    await until('the port to close', async () => (await get(sbx.getHost(8000))).status === 502)
  })
  test('keeps statuses, cookies and redirects', async (t) => {
    const { host } = await serve(await t.box())
    for (const code of [201, 302, 404, 418, 500, 503]) {
      const r = await get(host, `/status?code=${code}`, { redirect: 'manual' })
      assert.deepEqual([r.status, r.text, r.headers.get('location'), r.headers.getSetCookie()], [code, 'body', '/else', ['a=1', 'b=2']])
    }
  })
  test('carries much, both ways', async (t) => {
    const { host } = await serve(await t.box())
    assert.equal((await get(host, '/big?n=20000000')).text.length, 20_000_000)
    const body = 'y'.repeat(5_000_000)
    assert.equal(JSON.parse((await get(host, '/', { method: 'PUT', body })).text).body.length, body.length)
  })
  test('streams as it comes', async (t) => {
    const { host } = await serve(await t.box())
    const stop = new AbortController()
    const res = await fetch(`http://${host}/events`, { dispatcher: home, signal: stop.signal })
    let seen = ''
    for await (const p of res.body) {
      seen += new TextDecoder().decode(p)
      if (seen.includes('data: 3')) break
    }
    stop.abort()
    assert.match(seen, /^data: 1\n\ndata: 2\n\n/)
  })
  test('serves many at once', async (t) => {
    const { host } = await serve(await t.box())
    const all = await Promise.all(Array.from({ length: 60 }, (_, i) => get(host, `/n/${i}`)))
    all.forEach((r, i) => assert.equal(JSON.parse(r.text).url, `/n/${i}`))
  })
  test('tells the program nothing that opens the box or the engine', async (t) => {
    const sbx = await t.box()
    const { host } = await serve(sbx)
    const secrets = { 'x-api-key': process.env.E2B_API_KEY, 'x-access-token': sbx.envdAccessToken, 'e2b-traffic-access-token': 'x' }
    const seen = (await get(host, '/', { headers: secrets })).text
    for (const s of [process.env.E2B_API_KEY, sbx.envdAccessToken, 'e2b-traffic-access-token']) assert.ok(!seen.includes(s))
  })
  test('by headers instead of the name', async (t) => {
    const sbx = await t.box()
    const { at } = await serve(sbx)
    const res = await fetch(`${engine}/here`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': String(at) } })
    assert.equal((await res.json()).url, '/here')
  })
  test('that is closed says so', async (t) => {
    const sbx = await t.box()
    const r = await get(sbx.getHost(3999))
    const body = JSON.parse(r.text)
    assert.deepEqual([r.status, body.code, body.port, body.sandboxId], [502, 502, 3999, sbx.sandboxId])
    assert.match(body.message, /not open/)
  })
  test('of a dead sandbox says so', async (t) => {
    const sbx = await t.fresh()
    await sbx.kill()
    for (const id of [sbx.sandboxId, 'nosuchsandbox']) {
      const r = await get(`3000-${id}.${process.env.E2B_DOMAIN}`)
      const body = JSON.parse(r.text)
      assert.deepEqual([r.status, body.code, body.sandboxId], [502, 502, id])
      assert.match(body.message, /not found/)
    }
  })
  test('breaks off with the sandbox', async (t) => {
    const sbx = await t.fresh()
    const { host } = await serve(sbx)
    const res = await fetch(`http://${host}/events`, { dispatcher: home })
    const reader = res.body.getReader()
    await reader.read()
    await sbx.kill()
    await assert.rejects(async () => { for (;;) if ((await reader.read()).done) return })
  })
  test('never reach the daemon without its token', async (t) => {
    const sbx = await t.box()
    for (const path of ['/files?path=/etc/passwd&username=user', '/envs', '/metrics']) {
      assert.equal((await get(sbx.getHost(49983), path)).status, 401, path)
    }
    assert.equal((await get(sbx.getHost(49983), '/health')).status, 204)
    for (const path of ['/init', '/dreamcore/init', '/']) {
      assert.notEqual((await get(sbx.getHost(49983), path, { method: 'POST', body: '{}', headers: { 'x-access-token': sbx.envdAccessToken } })).status, 204, path)
    }
  })
  test('out of range are no ports', async (t) => {
    const sbx = await t.box()
    for (const p of ['0', '65536', '99999999999', '-1', 'x']) {
      const res = await fetch(`${engine}/`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': p } })
      assert.equal(res.status, 400, p)
      assert.match((await res.json()).message, /is no port/)
    }
  })
})

group('ports/token', (test) => {
  test('is asked for when the sandbox is not public', async (t) => {
    const sbx = await t.fresh({ network: { allowPublicTraffic: false } })
    assert.ok(sbx.trafficAccessToken)
    const { host } = await serve(sbx)
    assert.equal((await get(host)).status, 403)
    assert.equal((await get(host, '/', { headers: { 'e2b-traffic-access-token': 'wrong' } })).status, 403)
    const r = await get(host, '/', { headers: { 'e2b-traffic-access-token': sbx.trafficAccessToken } })
    assert.equal(r.status, 200)
    assert.ok(!r.text.includes(sbx.trafficAccessToken))
    const other = await t.fresh({ network: { allowPublicTraffic: false } })
    assert.equal((await get(host, '/', { headers: { 'e2b-traffic-access-token': other.trafficAccessToken } })).status, 403)
    assert.equal((await t.sdk.Sandbox.connect(sbx.sandboxId)).trafficAccessToken, sbx.trafficAccessToken)
  })
  test('is not asked for otherwise', async (t) => {
    const sbx = await t.fresh({ network: { allowPublicTraffic: true } })
    assert.equal(sbx.trafficAccessToken, undefined)
    const { host } = await serve(sbx)
    assert.equal((await get(host)).status, 200)
  })
})

group('ports/websocket', (test) => {
  const open = (host, headers) => new Promise((resolve, reject) => {
    const ws = new WebSocket(`ws://${host}/socket`, { dispatcher: home, headers })
    ws.binaryType = 'arraybuffer'
    ws.onopen = () => resolve(ws)
    ws.onerror = (e) => reject(e.error ?? new Error('the WebSocket does not open'))
  })
  const next = (ws) => new Promise((resolve, reject) => {
    ws.onmessage = (e) => resolve(e.data)
    ws.onclose = () => reject(new Error('closed'))
  })

  test('carries text and bytes both ways', async (t) => {
    const { host } = await serve(await t.box())
    const ws = await open(host)
    for (const said of ['hello', 'ünï 世界 😀', 'x'.repeat(300), 'y'.repeat(500_000)]) {
      ws.send(said)
      assert.equal(await next(ws), said)
    }
    ws.send(new Uint8Array([0, 1, 254, 255]))
    assert.deepEqual(new Uint8Array(await next(ws)), new Uint8Array([0, 1, 254, 255]))
    ws.close()
  })
  test('needs the traffic token where there is one', async (t) => {
    const sbx = await t.fresh({ network: { allowPublicTraffic: false } })
    const { host } = await serve(sbx)
    await assert.rejects(open(host))
    const ws = await open(host, { 'e2b-traffic-access-token': sbx.trafficAccessToken })
    ws.send('in')
    assert.equal(await next(ws), 'in')
    ws.close()
  })
  test('is closed with the sandbox', async (t) => {
    const sbx = await t.fresh()
    const { host } = await serve(sbx)
    const ws = await open(host)
    const closed = new Promise((done) => { ws.onclose = done })
    await sbx.kill()
    await closed
  })
  test('can be any other protocol', async (t) => {
    const sbx = await t.box()
    const { at } = await serve(sbx)
    // A bare upgrade, as other clients make it.
    const socket = await new Promise((resolve, reject) => {
      const req = http.request(engine, { headers: { Host: sbx.getHost(at), Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==', 'Sec-WebSocket-Version': '13' } })
      req.on('upgrade', (res, s) => { assert.equal(res.statusCode, 101); resolve(s) })
      req.on('error', reject)
      req.end()
    })
    socket.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]))
    const back = await new Promise((done) => socket.once('data', done))
    assert.deepEqual([...back], [0x81, 0x02, 0x68, 0x69])
    socket.destroy()
  })
})

group('ports/face', (test) => {
  test('shows programs the host that the sandbox was made with', async (t) => {
    const sbx = await t.fresh({ network: { maskRequestHost: 'custom-host.example.com:${PORT}' } })
    const { at, host } = await serve(sbx)
    assert.equal(JSON.parse((await get(host)).text).headers.host, `custom-host.example.com:${at}`)
    assert.equal((await sbx.getInfo()).network.maskRequestHost, 'custom-host.example.com:${PORT}')
    await assert.rejects(t.sdk.Sandbox.create({ network: { maskRequestHost: 'a b\r\nX: y' } }))
  })
  test('speaks TLS to ports that do', async (t) => {
    // The older SDK does not know the option and leaves it out.
    if (t.version < '2.46') return
    const sbx = await t.fresh({ network: { httpsPorts: [8443] } })
    await sbx.files.write('/tmp/tls.py', `
import http.server, ssl
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'over tls')
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 8443), H)
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
c.load_cert_chain('/tmp/cert.pem', '/tmp/key.pem')
s.socket = c.wrap_socket(s.socket, server_side=True)
s.serve_forever()
`)
    const { key, cert } = JSON.parse(process.env.PEER_CERTIFICATE)
    await sbx.files.write([{ path: '/tmp/key.pem', data: key }, { path: '/tmp/cert.pem', data: cert }])
    await sbx.commands.run('python3 /tmp/tls.py', { background: true, timeoutMs: 0 })
    const r = await until('the server', async () => { const r = await get(sbx.getHost(8443)); return r.status === 200 && r })
    assert.equal(r.text, 'over tls')
    assert.deepEqual((await sbx.getInfo()).network.httpsPorts, [8443])
    for (const httpsPorts of [[0], [70000], [49983]]) await assert.rejects(t.sdk.Sandbox.create({ network: { httpsPorts } }))
  })
  test('is told with the rest of the network', async (t) => {
    const sbx = await t.fresh({ network: { allowPublicTraffic: false } })
    const { network } = await sbx.getInfo()
    assert.deepEqual([network.allowOut, network.denyOut, network.allowPublicTraffic], [[], ['0.0.0.0/0'], false])
    assert.equal((await (await t.box()).getInfo()).network.allowPublicTraffic, true)
  })
})
