import assert from 'node:assert/strict'
import { group, fails, until } from './suite.mjs'

const bytes = (s) => new TextEncoder().encode(s)

// terminal opens a terminal and collects what it shows.
async function terminal(sbx, opts = {}) {
  const decoder = new TextDecoder()
  const seen = { text: '' }
  const handle = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 120_000, onData: (d) => { seen.text += decoder.decode(d, { stream: true }) }, ...opts })
  // plain is what is shown without what only a terminal understands.
  seen.plain = () => seen.text.replace(/\x1b\[[?0-9;]*[A-Za-z]|\x1b\][^\x07]*\x07/g, '').replaceAll('\r', '')
  const type = (s) => sbx.pty.sendInput(handle.pid, bytes(s))
  return { handle, seen, type, shows: (what) => until(`the terminal to show ${what}`, () => what.test(seen.text)) }
}

group('pty', (test) => {
  test('runs a login shell with what it is given', async (t) => {
    const sbx = await t.box()
    const { handle, seen, type } = await terminal(sbx, { envs: { ABC: '123' }, cwd: '/usr/lib' })
    await type('echo "<$ABC|$PWD|$TERM|$LANG>"; shopt -q login_shell && echo lo""gin; id -un; tty; exit\n')
    const r = await handle.wait()
    assert.deepEqual([handle.exitCode, r.exitCode], [0, 0])
    assert.match(seen.text, /<123\|\/usr\/lib\|xterm-256color\|C.UTF-8>/)
    assert.match(seen.plain(), /\nlogin\nuser\n\/dev\/pts\/\d+\n/)
  })
  test('ends with the exit code of the shell', async (t) => {
    const { handle, type } = await terminal(await t.box())
    await type('exit 7\n')
    assert.equal((await fails(handle.wait(), t.sdk.CommandExitError)).exitCode, 7)
  })
  test('is of the user that is asked for', async (t) => {
    const { handle, seen, type } = await terminal(await t.box(), { user: 'root' })
    await type('id -un; pwd; exit\n')
    await handle.wait()
    assert.match(seen.plain(), /\nroot\n\/root\n/)
    await fails((await t.box()).pty.create({ cols: 80, rows: 24, onData: () => {}, user: 'nobody-like-this' }), t.sdk.AuthenticationError)
  })
  test('has the size that is asked for', async (t) => {
    const { handle, seen, type } = await terminal(await t.box(), { cols: 133, rows: 41 })
    await type('stty size; tput cols; exit\n')
    await handle.wait()
    assert.match(seen.plain(), /\n41 133\n133\n/)
  })
  test('changes its size and tells the program', async (t) => {
    const sbx = await t.box()
    const { handle, seen, type, shows } = await terminal(sbx)
    await type(`trap 'echo "re""sized $(stty size)"' WINCH; echo re""ady\n`)
    await shows(/ready/)
    await sbx.pty.resize(handle.pid, { cols: 100, rows: 30 })
    await type('\n')
    await shows(/resized 30 100/)
    await type('tput cols; exit\n')
    await handle.wait()
    assert.match(seen.plain(), /\n100\n/)
  })
  test('passes control characters on', async (t) => {
    const { handle, type, shows } = await terminal(await t.box())
    // It speaks when it is the terminal's own already: what is typed then is for it.
    await type(`sh -c 'echo be""fore; exec sleep 600'\n`)
    await shows(/before/)
    await type('\x03')
    await type('echo inter""rupted $?\n')
    await shows(/interrupted 130/)
    await type('\x04')
    await handle.wait()
  })
  test('keeps colours and other scripts', async (t) => {
    const { handle, seen, type } = await terminal(await t.box())
    await type(`printf '\\033[31m%s\\033[0m\\n' '世界 😀'; exit\n`)
    await handle.wait()
    assert.ok(seen.text.includes('\x1b[31m世界 😀\x1b[0m'))
  })
  test('takes what is typed ahead', async (t) => {
    const { handle, seen, type } = await terminal(await t.box())
    for (let i = 0; i < 30; i++) await type(`echo n$((${i}+1000))\n`)
    await type('exit\n')
    await handle.wait()
    for (let i = 0; i < 30; i++) assert.ok(seen.text.includes(`n${i + 1000}\r\n`), `n${i + 1000}`)
  })
  test('shows much output whole', async (t) => {
    const { handle, seen, type } = await terminal(await t.box())
    await type('seq 1 50000 | tail -n 50000; exit\n')
    await handle.wait()
    assert.ok(seen.text.includes('\r\n25000\r\n25001\r\n') && seen.text.includes('\r\n50000\r\n'))
    assert.ok(seen.text.length > 330_000, String(seen.text.length))
  })
  test('takes a long paste', async (t) => {
    const sbx = await t.box()
    const { handle, type, shows } = await terminal(sbx)
    await type(`stty -echo; echo quie""t; cat > ${t.dir}\n`)
    await shows(/quiet/)
    const paste = Array.from({ length: 4000 }, (_, i) => `line ${i}\n`).join('')
    await type(paste)
    // An end of file that is typed ahead is none in gVisor's terminals.
    await until('all of it', async () => await sbx.files.exists(t.dir) && (await sbx.files.getInfo(t.dir)).size >= paste.length)
    await type('\x04')
    await type('exit\n')
    await handle.wait()
    assert.equal(await sbx.files.read(t.dir), paste)
  })
  test('is killed, once', async (t) => {
    const sbx = await t.box()
    const { handle, type, shows } = await terminal(sbx)
    await type('sleep 7571 & echo started\n')
    await shows(/\nstarted/)
    assert.equal(await sbx.pty.kill(handle.pid), true)
    await fails(handle.wait(), t.sdk.CommandExitError)
    assert.equal(await sbx.pty.kill(handle.pid), false)
    await until('its children to end', async () => (await sbx.commands.run("ps -eo args | grep -c '[s]leep 7571' || true")).stdout.trim() === '0')
  })
  test('is killed by its handle', async (t) => {
    const { handle } = await terminal(await t.box())
    assert.equal(await handle.kill(), true)
    await fails(handle.wait(), t.sdk.CommandExitError)
  })
  test('outlives its client, and another connects', async (t) => {
    const sbx = await t.box()
    const { handle, type, shows } = await terminal(sbx, { envs: { FOO: 'bar' } })
    await type('echo "<$FOO>"\n')
    await shows(/<bar>/)
    await handle.disconnect()
    let second = ''
    const again = await sbx.pty.connect(handle.pid, { onData: (d) => { second += new TextDecoder().decode(d) } })
    assert.equal(again.pid, handle.pid)
    await sbx.pty.sendInput(again.pid, bytes('echo "<<$FOO>>"; exit\n'))
    assert.equal((await again.wait()).exitCode, 0)
    assert.match(second, /<<bar>>/)
  })
  test('is seen by two at once', async (t) => {
    const sbx = await t.box()
    const { handle, seen, type } = await terminal(sbx)
    let theirs = ''
    const other = await (await t.sdk.Sandbox.connect(sbx.sandboxId)).pty.connect(handle.pid, { onData: (d) => { theirs += new TextDecoder().decode(d) } })
    await type('echo bo""th; exit\n')
    await Promise.all([handle.wait(), other.wait()])
    assert.match(seen.text, /both/)
    assert.match(theirs, /both/)
  })
  test('is in the list of processes', async (t) => {
    const sbx = await t.box()
    const { handle } = await terminal(sbx)
    const found = (await sbx.commands.list()).find((p) => p.pid === handle.pid)
    assert.deepEqual([found.cmd, found.args], ['/bin/bash', ['-i', '-l']])
    await handle.kill()
  })
  test('is killed at its time limit', async (t) => {
    const { handle } = await terminal(await t.box(), { timeoutMs: 6_000 })
    await fails(handle.wait(), t.sdk.TimeoutError)
  })
  test('of nobody fails', async (t) => {
    const sbx = await t.box()
    assert.equal(await sbx.pty.kill(999_999), false)
    await fails(sbx.pty.connect(999_999), t.sdk.NotFoundError)
    await fails(sbx.pty.sendInput(999_999, bytes('x')), t.sdk.NotFoundError)
    await fails(sbx.pty.resize(999_999, { cols: 1, rows: 1 }), t.sdk.NotFoundError)
  })
  test('and a command without terminal are told apart', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('read x; echo $x', { background: true, stdin: true })
    await assert.rejects(sbx.pty.sendInput(cmd.pid, bytes('x')))
    await assert.rejects(sbx.pty.resize(cmd.pid, { cols: 80, rows: 24 }))
    await cmd.sendStdin('fine\n')
    assert.equal((await cmd.wait()).stdout, 'fine\n')
  })
  test('breaks off with the sandbox', async (t) => {
    const sbx = await t.fresh()
    const { handle } = await terminal(sbx)
    await sbx.kill()
    await fails(handle.wait(), t.sdk.TimeoutError, /killed or reached its end of life/)
  })
})
