import assert from 'node:assert/strict'
import { group } from './suite.mjs'

group('files/metadata', (test) => {
  const metadata = { author: 'mish', purpose: 'a test, of "values"' }
  for (const useOctetStream of [false, true]) {
    const way = useOctetStream ? 'an octet stream' : 'a form'
    test(`comes back, sent with ${way}`, async (t) => {
      const sbx = await t.box()
      assert.deepEqual((await sbx.files.write(t.dir, 'x', { metadata, useOctetStream })).metadata, metadata)
      assert.deepEqual((await sbx.files.getInfo(t.dir)).metadata, metadata)
    })
  }
  test('is of every file that was sent', async (t) => {
    const sbx = await t.box()
    const infos = await sbx.files.writeFiles([{ path: `${t.dir}/1`, data: 'a' }, { path: `${t.dir}/2`, data: 'b' }], { metadata })
    for (const info of infos) {
      assert.deepEqual(info.metadata, metadata)
      assert.deepEqual((await sbx.files.getInfo(info.path)).metadata, metadata)
    }
  })
  test('is absent without any', async (t) => {
    const sbx = await t.box()
    assert.equal((await sbx.files.write(t.dir, 'x')).metadata, undefined)
    assert.equal((await sbx.files.getInfo(t.dir)).metadata, undefined)
  })
  test('is in a list', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/a`, 'x', { metadata })
    assert.deepEqual((await sbx.files.list(t.dir))[0].metadata, metadata)
  })
  test('goes along when the file moves', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/a`, 'x', { metadata })
    assert.deepEqual((await sbx.files.rename(`${t.dir}/a`, `${t.dir}/b`)).metadata, metadata)
  })
  test('goes when the file is written anew', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'x', { metadata })
    assert.equal((await sbx.files.write(t.dir, 'y')).metadata, undefined)
    assert.equal((await sbx.files.getInfo(t.dir)).metadata, undefined)
  })
  test('is an attribute of the file inside', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'x', { metadata: { one: '1' } })
    const r = await sbx.commands.run(`python3 -c 'import os; f = "${t.dir}"; print(os.getxattr(f, "user.e2b.one").decode()); os.setxattr(f, "user.e2b.two", b"2")'`)
    assert.equal(r.stdout, '1\n')
    assert.deepEqual((await sbx.files.getInfo(t.dir)).metadata, { one: '1', two: '2' })
  })
})
