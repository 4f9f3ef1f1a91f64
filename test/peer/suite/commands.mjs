import assert from 'node:assert/strict'
import { group, until, fails, sleep } from './suite.mjs'

group('commands/run', (test) => {
  test('gives the output and the exit code', async (t) => {
    const r = await (await t.box()).commands.run('echo to-out; echo to-err >&2')
    assert.deepEqual([r.exitCode, r.stdout, r.stderr, r.error], [0, 'to-out\n', 'to-err\n', undefined])
  })
  for (const [what, text] of Object.entries({
    'special characters': '!@#%^&*()_+-=[]{}|;:,.<>?/~',
    'several lines': 'one\ntwo\n\nfour',
    'other scripts': 'こんにちは 世界, 你好, Ünï©ødé',
    'characters beyond the first plane': '😀𝕏👩‍👩‍👧',
    'a backslash at the end': 'C:\\',
  })) {
    test(`keeps ${what}`, async (t) => {
      const r = await (await t.box()).commands.run(`printf %s '${text}'`)
      assert.equal(r.stdout, text)
    })
  }
  test('keeps quotes and dollars', async (t) => {
    const r = await (await t.box()).commands.run(`printf '%s' "a'b" '"c" $HOME \`d\`'`)
    assert.equal(r.stdout, `a'b"c" $HOME \`d\``)
  })
  test('throws what a failed command said', async (t) => {
    const err = await fails((await t.box()).commands.run('echo half; echo why >&2; exit 3'), t.sdk.CommandExitError)
    assert.deepEqual([err.exitCode, err.stdout, err.stderr, err.error], [3, 'half\n', 'why\n', 'exit status 3'])
  })
  test('ends with 127 when there is no such command', async (t) => {
    const err = await fails((await t.box()).commands.run('no-such-command-here'), t.sdk.CommandExitError)
    assert.equal(err.exitCode, 127)
    assert.match(err.stderr, /no-such-command-here/)
  })
  test('tells the signal that ended the command', async (t) => {
    const err = await fails((await t.box()).commands.run('kill -TERM $$'), t.sdk.CommandExitError)
    assert.equal(err.exitCode, -1)
    assert.match(err.error, /terminated/)
  })
  test('ends in time with a time limit', async (t) => {
    assert.equal((await (await t.box()).commands.run('echo in time', { timeoutMs: 60_000 })).stdout, 'in time\n')
  })
  test('has no time limit with 0', async (t) => {
    assert.equal((await (await t.box()).commands.run('sleep 0.2; echo slept', { timeoutMs: 0 })).stdout, 'slept\n')
  })
  test('is killed at its time limit with all its children', async (t) => {
    const sbx = await t.box()
    await fails(sbx.commands.run('sleep 7271 & sleep 7272', { timeoutMs: 4_000 }), t.sdk.TimeoutError, /timeoutMs/)
    await until('the children to end', async () => {
      const r = await sbx.commands.run("ps -eo args | grep -c '[s]leep 727[12]' || true")
      return r.stdout.trim() === '0'
    })
  })
  test('runs where it is told', async (t) => {
    assert.equal((await (await t.box()).commands.run('pwd', { cwd: '/usr/lib' })).stdout, '/usr/lib\n')
  })
  test('runs in the home of its user otherwise', async (t) => {
    const sbx = await t.box()
    assert.equal((await sbx.commands.run('pwd')).stdout, '/home/user\n')
    assert.equal((await sbx.commands.run('pwd', { user: 'root' })).stdout, '/root\n')
  })
  test('understands a relative folder', async (t) => {
    const sbx = await t.box()
    await sbx.files.makeDir(`${t.dir}/inner`)
    assert.equal((await sbx.commands.run('pwd', { cwd: `${t.dir}/inner` })).stdout, `/home/user/${t.dir}/inner\n`)
  })
  test('refuses a folder that does not exist', async (t) => {
    await fails((await t.box()).commands.run('pwd', { cwd: '/no/such/folder' }), t.sdk.InvalidArgumentError, /no\/such\/folder/)
  })
  test('is user, without powers', async (t) => {
    const r = await (await t.box()).commands.run('id -un; id -u; id -g; touch /etc/mine 2>&1 || true')
    assert.match(r.stdout, /^user\n1000\n1000\n.*denied/s)
  })
  test('is root when root is asked for', async (t) => {
    assert.equal((await (await t.box()).commands.run('id -un; echo $HOME $USER', { user: 'root' })).stdout, 'root\n/root root\n')
  })
  test('refuses a user that does not exist', async (t) => {
    await fails((await t.box()).commands.run('id', { user: 'nobody-like-this' }), t.sdk.AuthenticationError, /nobody-like-this/)
  })
  test('is a login shell', async (t) => {
    const r = await (await t.box()).commands.run('shopt -q login_shell && echo login; command -v node python3 git')
    assert.match(r.stdout, /^login\n.*node\n.*python3\n.*git\n$/s)
  })
  test('takes a long command', async (t) => {
    const long = 'x'.repeat(100_000)
    assert.equal((await (await t.box()).commands.run(`printf %s ${long} | wc -c`)).stdout.trim(), '100000')
  })
  test('refuses a command that the kernel cannot take', async (t) => {
    await fails((await t.box()).commands.run('true '.padEnd(3_000_000, 'x')), t.sdk.SandboxError)
  })
  test('runs many at once, each with its own answer', async (t) => {
    const sbx = await t.box()
    const all = await Promise.all(Array.from({ length: 40 }, (_, i) => sbx.commands.run(`echo out-${i}; echo err-${i} >&2`)))
    all.forEach((r, i) => assert.deepEqual([r.stdout, r.stderr], [`out-${i}\n`, `err-${i}\n`]))
  })
})

group('commands/env', (test) => {
  test('reaches the command and no other', async (t) => {
    const sbx = await t.box()
    assert.equal((await sbx.commands.run('echo "$ONE"', { envs: { ONE: 'a "b" $c\nd' } })).stdout, 'a "b" $c\nd\n')
    assert.equal((await sbx.commands.run('echo "[$ONE]"')).stdout, '[]\n')
  })
  test('reaches every program', async (t) => {
    const r = await (await t.box()).commands.run(`python3 -c 'import os; print(os.environ["ONE"])'`, { envs: { ONE: 'bar' } })
    assert.equal(r.stdout, 'bar\n')
  })
  test('of the sandbox reaches all, and the command wins', async (t) => {
    const sbx = await t.fresh({ envs: { ALL: 'sandbox', BOTH: 'sandbox' } })
    assert.equal((await sbx.commands.run('echo $ALL $BOTH')).stdout, 'sandbox sandbox\n')
    assert.equal((await sbx.commands.run('echo $ALL $BOTH', { envs: { BOTH: 'command' } })).stdout, 'sandbox command\n')
    const pty = await sbx.commands.run('echo $ALL', { user: 'root' })
    assert.equal(pty.stdout, 'sandbox\n')
  })
})

group('commands/output', (test) => {
  test('comes in pieces while the command runs', async (t) => {
    const sbx = await t.box()
    const seen = []
    const cmd = await sbx.commands.run('echo first; read line; echo $line >&2', {
      background: true, stdin: true, onStdout: (s) => seen.push('o:' + s), onStderr: (s) => seen.push('e:' + s),
    })
    await until('the first line', () => seen.includes('o:first\n'))
    await cmd.sendStdin('second\n')
    await cmd.wait()
    assert.deepEqual(seen, ['o:first\n', 'e:second\n'])
  })
  test('waits for callbacks that take their time', async (t) => {
    let handled = 0
    await (await t.box()).commands.run('echo a; sleep 0.1; echo b', { onStdout: async () => { await sleep(50); handled++ } })
    assert.ok(handled >= 1)
  })
  test('passes on what a callback throws', async (t) => {
    await fails((await t.box()).commands.run('echo a', { onStdout: () => { throw new RangeError('mine') } }), RangeError, /mine/)
  })
  test('of 8 MB arrives whole', async (t) => {
    const r = await (await t.box()).commands.run(`python3 -c '
import sys
for i in range(200000): sys.stdout.write("%07d %s\\n" % (i, "x" * 32))'`)
    assert.equal(r.stdout.length, 200_000 * 41)
    assert.ok(r.stdout.startsWith('0000000 x') && r.stdout.endsWith(`0199999 ${'x'.repeat(32)}\n`))
  })
  test('of both streams at once arrives whole', async (t) => {
    const r = await (await t.box()).commands.run('for i in $(seq 3000); do echo o$i; echo e$i >&2; done')
    const want = (c) => Array.from({ length: 3000 }, (_, i) => `${c}${i + 1}\n`).join('')
    assert.equal(r.stdout, want('o'))
    assert.equal(r.stderr, want('e'))
  })
  test('keeps characters that come in two pieces', async (t) => {
    const r = await (await t.box()).commands.run(`printf '\\xf0\\x9f'; sleep 0.2; printf '\\x98\\x80'`)
    assert.equal(r.stdout, '😀')
  })
  test('replaces what is no text', async (t) => {
    assert.equal((await (await t.box()).commands.run(`printf 'a\\xff\\xfeb'`)).stdout, 'a\ufffd\ufffdb')
  })
  test('does not wait for children that were left behind', async (t) => {
    const r = await (await t.box()).commands.run('sleep 300 & echo done')
    assert.equal(r.stdout, 'done\n')
  })
  test('that nobody takes does not stop the command', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run(`python3 -c 'print("y" * 60_000_000)'; touch ${t.dir}`, { background: true })
    await cmd.disconnect()
    await until('the command to finish', () => sbx.files.exists(t.dir))
  })
})

group('commands/background', (test) => {
  test('returns at once and can be waited for', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('read line; echo got $line; exit 5', { background: true, stdin: true })
    assert.ok(cmd.pid > 1)
    assert.equal(cmd.exitCode, undefined)
    await cmd.sendStdin('it\n')
    const err = await fails(cmd.wait(), t.sdk.CommandExitError)
    assert.deepEqual([err.exitCode, err.stdout], [5, 'got it\n'])
  })
  test('outlives the connection that started it', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run(`until [ -e ${t.dir}/go ]; do sleep 0.05; done; touch ${t.dir}/came`, { background: true })
    await cmd.disconnect()
    await sbx.files.write(`${t.dir}/go`, '')
    await until('the command to go on', () => sbx.files.exists(`${t.dir}/came`))
  })
  test('outlives an aborted call', async (t) => {
    const sbx = await t.box()
    const stop = new AbortController()
    const run = sbx.commands.run(`touch ${t.dir}-a; until [ -e ${t.dir}-go ]; do sleep 0.05; done; touch ${t.dir}-b`, { signal: stop.signal })
    await until('the command to begin', () => sbx.files.exists(`${t.dir}-a`))
    stop.abort()
    await assert.rejects(run)
    await sbx.files.write(`${t.dir}-go`, '')
    await until('the command to go on', () => sbx.files.exists(`${t.dir}-b`))
  })
  test('is listed with what it was started with', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('sleep 600; true', { background: true, cwd: '/tmp', envs: { MARK: t.dir } })
    const found = (await sbx.commands.list()).find((p) => p.pid === cmd.pid)
    assert.deepEqual([found.cmd, found.args.at(-1), found.cwd, found.envs.MARK], ['/bin/bash', 'sleep 600; true', '/tmp', t.dir])
    await cmd.kill()
    await until('it to leave the list', async () => !(await sbx.commands.list()).some((p) => p.pid === cmd.pid))
  })
})

group('commands/kill', (test) => {
  test('ends the command, once', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('sleep 600', { background: true })
    assert.equal(await sbx.commands.kill(cmd.pid), true)
    const err = await fails(cmd.wait(), t.sdk.CommandExitError)
    assert.equal(err.exitCode, -1)
    assert.match(err.error, /killed/)
    assert.equal(await sbx.commands.kill(cmd.pid), false)
  })
  test('by the handle', async (t) => {
    const cmd = await (await t.box()).commands.run('sleep 600', { background: true })
    assert.equal(await cmd.kill(), true)
    await fails(cmd.wait(), t.sdk.CommandExitError)
  })
  test('reaches children and their children', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run(`(sleep 7371 & sleep 7372 & wait) & touch ${t.dir}; wait`, { background: true })
    await until('the children', () => sbx.files.exists(t.dir))
    await cmd.kill()
    await until('the children to end', async () =>
      (await sbx.commands.run("ps -eo args | grep -c '[s]leep 737[12]' || true")).stdout.trim() === '0')
  })
  test('of nobody is false', async (t) => {
    assert.equal(await (await t.box()).commands.kill(999_999), false)
  })
  test('of the daemon itself is impossible', async (t) => {
    const sbx = await t.box()
    assert.equal(await sbx.commands.kill(1), false)
    assert.equal((await sbx.commands.run('kill -9 1; echo alive')).stdout, 'alive\n')
  })
})

group('commands/connect', (test) => {
  test('follows a running command', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('read a; echo $a', { background: true, stdin: true })
    let seen = ''
    const second = await sbx.commands.connect(cmd.pid, { onStdout: (s) => { seen += s } })
    assert.equal(second.pid, cmd.pid)
    await second.sendStdin('both\n')
    const [a, b] = await Promise.all([cmd.wait(), second.wait()])
    assert.deepEqual([a.stdout, b.stdout, seen], ['both\n', 'both\n', 'both\n'])
  })
  test('brings what nobody had taken', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run(`until [ -e ${t.dir}-go ]; do sleep 0.02; done; echo unseen; touch ${t.dir}-said; read a; echo $a`, { background: true, stdin: true })
    await cmd.disconnect()
    await sbx.files.write(`${t.dir}-go`, '')
    await until('the output', () => sbx.files.exists(`${t.dir}-said`))
    const again = await sbx.commands.connect(cmd.pid)
    await again.sendStdin('seen\n')
    assert.equal((await again.wait()).stdout, 'unseen\nseen\n')
  })
  test('brings the end of a command that ended meanwhile', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run(`until [ -e ${t.dir}-go ]; do sleep 0.02; done; exit 9`, { background: true })
    await cmd.disconnect()
    await sbx.files.write(`${t.dir}-go`, '')
    await until('the end', async () => !(await sbx.commands.list()).some((p) => p.pid === cmd.pid))
    const err = await fails((await sbx.commands.connect(cmd.pid)).wait(), t.sdk.CommandExitError)
    assert.equal(err.exitCode, 9)
  })
  test('from another client of the sandbox', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('read a; echo other $a', { background: true, stdin: true })
    const other = await t.sdk.Sandbox.connect(sbx.sandboxId)
    const theirs = await other.commands.connect(cmd.pid)
    await other.commands.sendStdin(cmd.pid, 'hand\n')
    assert.equal((await theirs.wait()).stdout, 'other hand\n')
    assert.equal((await cmd.wait()).stdout, 'other hand\n')
  })
  test('to nobody fails', async (t) => {
    await fails((await t.box()).commands.connect(999_999), t.sdk.NotFoundError)
  })
  test('survives a first client that disconnects', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('read a; echo $a', { background: true, stdin: true })
    const second = await sbx.commands.connect(cmd.pid)
    await cmd.disconnect()
    await second.sendStdin('still here\n')
    assert.equal((await second.wait()).stdout, 'still here\n')
  })
})

group('commands/stdin', (test) => {
  for (const [what, text] of Object.entries({
    'text': 'Hello', 'nothing': '', 'special characters': '!@#$%^&*()_+\\\'"', 'several lines': 'a\nb\n\nc\n', 'other scripts': '世界 😀',
  })) {
    test(`carries ${what}`, async (t) => {
      const cmd = await (await t.box()).commands.run('cat', { background: true, stdin: true })
      await cmd.sendStdin(text)
      await cmd.closeStdin()
      assert.equal((await cmd.wait()).stdout, text)
    })
  }
  test('carries bytes', async (t) => {
    const cmd = await (await t.box()).commands.run('od -An -tx1', { background: true, stdin: true })
    await cmd.sendStdin(new Uint8Array([0, 255, 10, 128]))
    await cmd.closeStdin()
    assert.equal((await cmd.wait()).stdout.trim(), '00 ff 0a 80')
  })
  test('carries 2 MB in order', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('md5sum', { background: true, stdin: true })
    const { createHash } = await import('node:crypto')
    const sum = createHash('md5')
    for (let i = 0; i < 8; i++) {
      const part = String(i).repeat(256 << 10)
      sum.update(part)
      await sbx.commands.sendStdin(cmd.pid, part)
    }
    await sbx.commands.closeStdin(cmd.pid)
    assert.equal((await cmd.wait()).stdout.split(' ')[0], sum.digest('hex'))
  })
  test('is at its end unless it is asked for', async (t) => {
    assert.equal((await (await t.box()).commands.run('cat; echo end')).stdout, 'end\n')
  })
  test('cannot be sent after it was closed', async (t) => {
    const sbx = await t.box()
    const cmd = await sbx.commands.run('sleep 600', { background: true, stdin: true })
    await cmd.closeStdin()
    await fails(cmd.sendStdin('late'), t.sdk.SandboxError)
    await cmd.kill()
  })
  test('cannot be sent to nobody', async (t) => {
    const sbx = await t.box()
    await fails(sbx.commands.sendStdin(999_999, 'x'), t.sdk.NotFoundError)
    await fails(sbx.commands.closeStdin(999_999), t.sdk.NotFoundError)
  })
})
