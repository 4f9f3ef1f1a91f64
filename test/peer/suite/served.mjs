import assert from 'node:assert/strict'
import { group, fails } from './suite.mjs'

// What E2B's own sandboxes have and programs written for them count on.
group('served', (test) => {
  test('sudo makes root of the user, without a password', async (t) => {
    const sbx = await t.box()
    const r = await sbx.commands.run('sudo id -un; sudo sh -c "echo hi > /etc/motd"; cat /etc/motd; sudo -u nobody id -un; id -un')
    assert.deepEqual([r.stdout, r.stderr], ['root\nhi\nnobody\nuser\n', ''])
  })
  test('sudo passes no variables of a command on', async (t) => {
    const sbx = await t.box()
    assert.equal((await sbx.commands.run('sudo sh -c \'echo "[$FOO]"\'', { envs: { FOO: 'bar' } })).stdout, '[]\n')
  })
  test('sudo does not leave the sandbox', async (t) => {
    const sbx = await t.box()
    for (const attempt of ['mount -t tmpfs x /mnt', 'cat /proc/1/environ | grep -a .', 'ip link add d0 type dummy']) {
      await fails(sbx.commands.run(`sudo bash -c '${attempt}'`), t.sdk.CommandExitError)
    }
  })
  test('the sandbox knows that it is one, and which', async (t) => {
    const sbx = await t.box()
    const r = await sbx.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX; echo; cat /run/e2b/.E2B_SANDBOX_ID')
    assert.deepEqual(r.stdout.split(/\s+/).filter(Boolean), ['true', sbx.sandboxId, 'true', sbx.sandboxId])
  })
  test('has a home, a temporary folder and a workspace for all', async (t) => {
    const sbx = await t.box()
    assert.match((await sbx.commands.run('cd ~ && pwd && stat -c %a /tmp && touch /tmp/x /workspace/x ~/x && hostname && getent hosts localhost && ping -c1 -W2 127.0.0.1 >/dev/null 2>&1; echo end')).stdout, /^\/home\/user\n1777\n.*end\n$/s)
  })
  test('programs talk to each other over the loopback', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run('python3 -m http.server 8123 --bind 0.0.0.0', { background: true, cwd: '/etc', timeoutMs: 0 })
    const r = await sbx.commands.run('for i in $(seq 100); do curl -sf http://localhost:8123/passwd | grep ^user && exit 0; sleep 0.1; done; exit 1')
    assert.match(r.stdout, /^user:/)
  })
})
