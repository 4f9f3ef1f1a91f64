import assert from 'node:assert/strict'
import { group, fails } from './suite.mjs'

// The SDK's git module is commands that it puts together and answers that it
// reads: it works where commands and files do, and git is in the image.
group('git', (test) => {
  async function repo(t) {
    const sbx = await t.box()
    const at = `/home/user/${t.dir}`
    await sbx.git.init(at, { initialBranch: 'main' })
    await sbx.git.configureUser('Ada', 'ada@example.com', { scope: 'local', path: at })
    await sbx.files.write(`${at}/README.md`, '# hello\n')
    await sbx.git.add(at)
    await sbx.git.commit(at, 'first')
    return { sbx, at }
  }
  test('commits and tells the state', async (t) => {
    const { sbx, at } = await repo(t)
    let s = await sbx.git.status(at)
    assert.deepEqual([s.currentBranch, s.isClean], ['main', true])
    await sbx.files.write(`${at}/README.md`, '# changed\n')
    await sbx.files.write(`${at}/new ü.txt`, 'x')
    s = await sbx.git.status(at)
    assert.equal(s.isClean, false)
    assert.deepEqual(s.fileStatus.map((f) => f.status).sort(), ['modified', 'untracked'])
    await sbx.git.add(at, { files: ['README.md'] })
    await sbx.git.commit(at, 'a "quoted" message\nand more', { authorName: 'Bob', authorEmail: 'bob@example.com' })
    assert.equal((await sbx.commands.run('git log -1 --format="%an|%s"', { cwd: at })).stdout, 'Bob|a "quoted" message and more\n')
  })
  test('makes, switches and deletes branches', async (t) => {
    const { sbx, at } = await repo(t)
    await sbx.git.createBranch(at, 'feature/one')
    assert.equal((await sbx.git.branches(at)).currentBranch, 'feature/one')
    await sbx.git.checkoutBranch(at, 'main')
    const b = await sbx.git.branches(at)
    assert.deepEqual([b.currentBranch, b.branches.sort()], ['main', ['feature/one', 'main']])
    await sbx.git.deleteBranch(at, 'feature/one')
    assert.deepEqual((await sbx.git.branches(at)).branches, ['main'])
    await assert.rejects(sbx.git.checkoutBranch(at, 'not-there'))
  })
  test('restores and resets', async (t) => {
    const { sbx, at } = await repo(t)
    await sbx.files.write(`${at}/README.md`, 'spoilt')
    await sbx.git.restore(at, { paths: ['README.md'] })
    assert.equal(await sbx.files.read(`${at}/README.md`), '# hello\n')
    await sbx.files.write(`${at}/README.md`, 'spoilt')
    await sbx.git.add(at)
    await sbx.git.reset(at, { mode: 'hard' })
    assert.equal((await sbx.git.status(at)).isClean, true)
  })
  test('clones, pushes and pulls between folders', async (t) => {
    const { sbx, at } = await repo(t)
    await sbx.commands.run(`git clone --bare ${at} ${at}.git`)
    await sbx.git.remoteAdd(at, 'origin', `${at}.git`)
    assert.equal(await sbx.git.remoteGet(at, 'origin'), `${at}.git`)
    await sbx.git.clone(`${at}.git`, { path: `${at}-clone` })
    await sbx.files.write(`${at}/two.txt`, '2')
    await sbx.git.add(at)
    await sbx.git.commit(at, 'second')
    await sbx.git.push(at, { remote: 'origin', branch: 'main', setUpstream: true })
    await sbx.git.pull(`${at}-clone`)
    assert.equal(await sbx.files.read(`${at}-clone/two.txt`), '2')
  })
  test('keeps settings', async (t) => {
    const { sbx, at } = await repo(t)
    await sbx.git.setConfig('pull.rebase', 'false', { scope: 'local', path: at })
    assert.equal(await sbx.git.getConfig('pull.rebase', { scope: 'local', path: at }), 'false')
    assert.equal(await sbx.git.getConfig('no.such', { scope: 'local', path: at }), undefined)
  })
  test('fails in words', async (t) => {
    const sbx = await t.box()
    assert.match((await fails(sbx.git.status('/tmp'), t.sdk.CommandExitError)).stderr, /not a git repository/)
    await assert.rejects(sbx.git.clone('/no/such/repository', { path: `/tmp/${t.dir}` }))
  })
})
