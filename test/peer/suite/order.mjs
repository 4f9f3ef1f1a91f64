import assert from 'node:assert/strict'
import { group, sleep, collect as all, ids } from './suite.mjs'

group('sandbox/list', (test) => {
  test('finds by template', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const sbx = await t.fresh({ metadata: { mark } })
    const find = async (template) => ids(await all(t.sdk.Sandbox.list({ query: { metadata: { mark }, template } })))
    assert.deepEqual(await find((await sbx.getInfo()).templateId), [sbx.sandboxId])
    assert.deepEqual(await find('base'), [sbx.sandboxId])
    assert.deepEqual(await find('another'), [])
  })
  test('comes in the order that is asked for', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    const a = await t.fresh({ metadata: { mark } })
    const b = await t.fresh({ metadata: { mark } })
    const c = await t.fresh({ metadata: { mark } })
    const find = async (opts) => ids(await all(t.sdk.Sandbox.list({ query: { metadata: { mark } }, limit: 2, ...opts })))
    assert.deepEqual(await find({ order: 'desc' }), ids([c, b, a]))
    assert.deepEqual(await find({}), ids([c, b, a]))
    if (t.version >= '2.51') assert.deepEqual(await find({ order: 'asc' }), ids([a, b, c]))
  })
  test('finds those that started later', async (t) => {
    const mark = `${t.dir}-${Math.random()}`
    await t.fresh({ metadata: { mark } })
    await sleep(20)
    const between = new Date()
    await sleep(20)
    const later = await t.fresh({ metadata: { mark } })
    const find = async (startedAfter) => ids(await all(t.sdk.Sandbox.list({ query: { metadata: { mark }, startedAfter } })))
    assert.deepEqual((await find(new Date(0))).length, 2)
    if (t.version >= '2.51') assert.deepEqual(await find(between), [later.sandboxId])
  })
})
