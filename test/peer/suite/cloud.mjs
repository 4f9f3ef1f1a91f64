import assert from 'node:assert/strict'
import { group, fails } from './suite.mjs'

// What is a matter of E2B's cloud is answered with an error that names it.
group('cloud', (test) => {
  test('templates are not built', async (t) => {
    const { Template } = t.sdk
    await fails(Template.build(Template().fromImage('debian:12').runCmd('true'), 'mine', { cpuCount: 1, memoryMB: 512 }), Error, /template/i)
    await fails(Template.build(Template().fromDockerfile('FROM debian:12\nRUN true\n'), 'mine'), Error, /template/i)
    await fails(Template.exists('mine'), Error, /template/i)
    await fails(Template.getTags('mine'), Error, /template/i)
  })
  test('volumes are not there', async (t) => {
    const { Volume } = t.sdk
    await fails(Volume.create('mine'), Error, /volume/i)
    await fails(Volume.list(), Error, /volume/i)
    await fails(Volume.connect('vol'), Error, /volume/i)
    await fails(Volume.destroy('vol'), Error, /volume/i)
    await fails(t.sdk.Sandbox.create({ volumeMounts: { '/mnt': 'mine' } }), Error, /volume/i)
  })
  test('secrets are not there', async (t) => {
    const { Secret } = t.sdk
    assert.equal(typeof Secret === 'undefined', t.version < '2.46' && typeof Secret === 'undefined')
    if (!Secret) return
    await fails(Secret.create('NAME', 'value'), Error, /secret/i)
    await fails(Secret.list().nextItems(), Error, /secret/i)
    await fails(Secret.getInfo('NAME'), Error, /secret/i)
    await fails(Secret.destroy('NAME'), Error, /secret/i)
  })
  test('the MCP gateway is not there', async (t) => {
    await fails(t.sdk.Sandbox.create({ mcp: { filesystem: {} } }), Error, /MCP/)
    const sbx = await t.box()
    assert.match(sbx.getMcpUrl(), new RegExp(`^https://50005-${sbx.sandboxId}\\.`))
    await fails(sbx.getMcpToken(), t.sdk.NotFoundError, /mcp-gateway/)
  })
  test('workload identities are not there', async (t) => {
    await fails(t.sdk.Sandbox.create({ iam: { tokens: { aws: { audience: 'x', tokenType: 'JWT-SVID' } } } }), Error, /identit/i)
  })
  test('there is no network to open', async (t) => {
    for (const network of [
      { allowOut: ['1.1.1.1'] }, { allowOut: ['example.com'], denyOut: ({ allTraffic }) => [allTraffic] }, { egressProxy: { address: 'proxy.example.com:1080' } },
      { rules: { 'example.com': [{ transform: { headers: { A: 'b' } } }] } },
    ]) await fails(t.sdk.Sandbox.create({ network }), Error, /network/i)
    const sbx = await t.fresh({ allowInternetAccess: false, network: { denyOut: ({ allTraffic }) => [allTraffic] } })
    await fails(sbx.commands.run('curl -sS --connect-timeout 3 http://1.1.1.1'), t.sdk.CommandExitError)
  })
})
