import assert from 'node:assert/strict'
import { group } from './suite.mjs'

group('sandbox/metrics', (test) => {
  test('of another time are other metrics', async (t) => {
    const sbx = await t.box()
    assert.deepEqual(await sbx.getMetrics({ start: new Date(Date.now() - 7200_000), end: new Date(Date.now() - 3600_000) }), [])
  })
})
