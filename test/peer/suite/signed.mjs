import assert from 'node:assert/strict'
import { group } from './suite.mjs'

async function refused(res, message) {
  const body = await res.json()
  assert.deepEqual([res.status, body.code], [401, 401])
  if (message) assert.match(body.message, message)
}

group('files/signed', (test) => {
  test('downloads without any header', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'hello world')
    const res = await fetch(await sbx.downloadUrl(t.dir))
    assert.deepEqual([res.status, await res.text()], [200, 'hello world'])
  })
  test('downloads before it expires and not after', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'hello world')
    const res = await fetch(await sbx.downloadUrl(t.dir, { useSignatureExpiration: 10_000 }))
    assert.deepEqual([res.status, await res.text()], [200, 'hello world'])
    await refused(await fetch(await sbx.downloadUrl(t.dir, { useSignatureExpiration: -10_000 })), /expired/)
  })
  test('downloads a part', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'hello world')
    const url = await sbx.downloadUrl(t.dir)
    for (const [range, status, want] of [['bytes=6-', 206, 'world'], ['bytes=0-4', 206, 'hello'], ['bytes=-3', 206, 'rld'], ['bytes=4-4', 206, 'o']]) {
      const res = await fetch(url, { headers: { Range: range } })
      assert.deepEqual([res.status, await res.text()], [status, want], range)
    }
    const beyond = await fetch(url, { headers: { Range: 'bytes=100-' } })
    assert.equal(beyond.status, 416)
    await beyond.arrayBuffer()
  })
  test('downloads as root what is root\'s', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'of root', { user: 'root' })
    const res = await fetch(await sbx.downloadUrl(t.dir, { user: 'root', useSignatureExpiration: 10_000 }))
    assert.deepEqual([res.status, await res.text()], [200, 'of root'])
  })
  test('uploads a form', async (t) => {
    const sbx = await t.box()
    for (const [user, home] of [[undefined, '/home/user'], ['root', '/root']]) {
      const form = new FormData()
      form.append('file', 'file content')
      const res = await fetch(await sbx.uploadUrl(`${t.dir}.txt`, { user, useSignatureExpiration: 10_000 }), { method: 'POST', body: form })
      assert.equal(res.status, 200)
      assert.deepEqual(await res.json(), [{ name: `${t.dir}.txt`, path: `${home}/${t.dir}.txt`, type: 'file' }])
      assert.equal(await sbx.files.read(`${t.dir}.txt`, { user }), 'file content')
    }
  })
  test('uploads many files without a path', async (t) => {
    const sbx = await t.box()
    const form = new FormData()
    form.append('file', new Blob(['one']), `${t.dir}/1`)
    form.append('file', new Blob(['two']), `${t.dir}/2`)
    const res = await fetch(await sbx.uploadUrl(), { method: 'POST', body: form })
    assert.equal(res.status, 200)
    assert.deepEqual((await res.json()).map((f) => f.path), [`/home/user/${t.dir}/1`, `/home/user/${t.dir}/2`])
  })
  test('does not upload when it has expired', async (t) => {
    const sbx = await t.box()
    const form = new FormData()
    form.append('file', 'file content')
    await refused(await fetch(await sbx.uploadUrl(t.dir, { useSignatureExpiration: -100_000 }), { method: 'POST', body: form }), /expired/)
    assert.equal(await sbx.files.exists(t.dir), false)
  })
  test('is worth nothing when anything in it is changed', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/a`, 'a')
    await sbx.files.write(`${t.dir}/b`, 'b')
    const good = await sbx.downloadUrl(`${t.dir}/a`, { useSignatureExpiration: 10_000 })
    assert.equal((await fetch(good)).status, 200)
    for (const [key, value] of [['path', `${t.dir}/b`], ['username', 'root'], ['signature_expiration', '99999999999'], ['signature', 'v1_AAAA']]) {
      const url = new URL(good)
      url.searchParams.set(key, value)
      const res = await fetch(url)
      assert.ok(res.status === 401 || res.status === 502, `${key}: ${res.status}`)
      await res.arrayBuffer()
    }
    for (const key of ['signature', 'signature_expiration']) {
      const url = new URL(good)
      url.searchParams.delete(key)
      assert.notEqual((await fetch(url)).status, 200, key)
    }
    // What is signed for reading is not signed for writing.
    const form = new FormData()
    form.append('file', 'overwritten')
    assert.notEqual((await fetch(good, { method: 'POST', body: form })).status, 200)
    assert.equal(await sbx.files.read(`${t.dir}/a`), 'a')
  })
  test('is of one sandbox', async (t) => {
    const [a, b] = [await t.box(), await t.fresh()]
    await a.files.write(t.dir, 'of a')
    await b.files.write(t.dir, 'of b')
    assert.equal(await (await fetch(await a.downloadUrl(t.dir))).text(), 'of a')
    assert.equal(await (await fetch(await b.downloadUrl(t.dir))).text(), 'of b')
    const url = await b.downloadUrl(t.dir)
    await b.kill()
    const res = await fetch(url)
    assert.ok([401, 502].includes(res.status), String(res.status))
    await res.arrayBuffer()
  })
  test('can be made with getSignature', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'hello')
    const url = new URL(await sbx.downloadUrl(t.dir, { user: 'user' }))
    const { signature } = await t.sdk.getSignature({ path: t.dir, operation: 'read', user: 'user', envdAccessToken: sbx.envdAccessToken })
    assert.equal(url.searchParams.get('signature'), signature)
    assert.equal(await (await fetch(url)).text(), 'hello')
  })
})
