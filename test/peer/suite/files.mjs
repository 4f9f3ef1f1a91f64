import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { group, fails } from './suite.mjs'

const text = (bytes) => new TextDecoder().decode(bytes)
const bytes = (s) => new TextEncoder().encode(s)

async function drain(stream) {
  const parts = []
  for await (const p of stream) parts.push(p)
  return Buffer.concat(parts)
}

group('files/write', (test) => {
  test('makes a file and says which', async (t) => {
    const sbx = await t.box()
    const info = await sbx.files.write(`${t.dir}.txt`, 'content')
    assert.deepEqual([info.name, info.type, info.path], [`${t.dir}.txt`, 'file', `/home/user/${t.dir}.txt`])
    assert.equal(await sbx.files.read(`${t.dir}.txt`), 'content')
  })
  test('replaces a file', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'a longer first content')
    await sbx.files.write(t.dir, 'second')
    assert.equal(await sbx.files.read(t.dir), 'second')
  })
  test('makes the folders on the way, of the user', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/a/b/c.txt`, 'deep')
    assert.equal(await sbx.files.read(`/home/user/${t.dir}/a/b/c.txt`), 'deep')
    assert.equal((await sbx.files.getInfo(`${t.dir}/a/b`)).owner, 'user')
  })
  for (const [what, make] of Object.entries({
    'a string': () => 'payload', 'an ArrayBuffer': () => bytes('payload').buffer, 'a Blob': () => new Blob(['pay', 'load']),
    'a stream': () => new Blob(['payload']).stream(),
  })) {
    test(`takes ${what}`, async (t) => {
      const sbx = await t.box()
      await sbx.files.write(t.dir, make())
      assert.equal(await sbx.files.read(t.dir), 'payload')
    })
    test(`takes ${what} as one octet stream`, async (t) => {
      const sbx = await t.box()
      const info = await sbx.files.write(t.dir, make(), { useOctetStream: true })
      assert.equal(info.path, `/home/user/${t.dir}`)
      assert.equal(await sbx.files.read(t.dir), 'payload')
    })
    test(`takes ${what} compressed`, async (t) => {
      const sbx = await t.box()
      await sbx.files.write(t.dir, make(), { gzip: true })
      assert.equal(await sbx.files.read(t.dir), 'payload')
    })
  }
  test('takes nothing', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, '')
    assert.equal(await sbx.files.read(t.dir), '')
    assert.equal((await sbx.files.getInfo(t.dir)).size, 0)
    assert.deepEqual(await sbx.files.write([]), [])
  })
  test('takes many files at once', async (t) => {
    const sbx = await t.box()
    const files = Array.from({ length: 300 }, (_, i) => ({ path: `${t.dir}/${i % 7}/f${i}`, data: `content ${i}` }))
    const infos = await sbx.files.write(files)
    assert.deepEqual(infos.map((i) => i.path), files.map((f) => `/home/user/${f.path}`))
    assert.equal((await sbx.commands.run(`cat ${t.dir}/*/f* | wc -c`)).stdout.trim(), String(files.reduce((n, f) => n + f.data.length, 0)))
  })
  test('takes one file as a list', async (t) => {
    const infos = await (await t.box()).files.writeFiles([{ path: t.dir, data: 'x' }])
    assert.equal(infos.length, 1)
  })
  test('takes many files compressed and mixed', async (t) => {
    const sbx = await t.box()
    await sbx.files.writeFiles([
      { path: `${t.dir}/1`, data: 'one' }, { path: `${t.dir}/2`, data: bytes('two').buffer }, { path: `${t.dir}/3`, data: new Blob(['three']) },
    ], { gzip: true })
    assert.deepEqual(await Promise.all([1, 2, 3].map((n) => sbx.files.read(`${t.dir}/${n}`))), ['one', 'two', 'three'])
  })
  test('goes through a link', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/real`, 'old')
    await sbx.commands.run(`ln -s real ${t.dir}/link`)
    await sbx.files.write(`${t.dir}/link`, 'new')
    assert.equal(await sbx.files.read(`${t.dir}/real`), 'new')
  })
  test('keeps the mode of a file that is there', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`touch ${t.dir}; chmod 750 ${t.dir}`)
    await sbx.files.write(t.dir, '#!/bin/sh\necho ran\n')
    assert.equal((await sbx.commands.run(`./${t.dir}`)).stdout, 'ran\n')
  })
  test('of 40 MB and back is unchanged', async (t) => {
    const sbx = await t.box()
    const big = randomBytes(40 << 20)
    await sbx.files.write(t.dir, new Blob([big]), { useOctetStream: true })
    const sum = createHash('sha256').update(big).digest('hex')
    assert.equal((await sbx.commands.run(`sha256sum ${t.dir}`)).stdout.split(' ')[0], sum)
    assert.equal(createHash('sha256').update(await drain(await sbx.files.read(t.dir, { format: 'stream' }))).digest('hex'), sum)
    await sbx.files.write(`${t.dir}-again`, new Blob([big]))
    assert.equal(createHash('sha256').update(await sbx.files.read(`${t.dir}-again`, { format: 'bytes' })).digest('hex'), sum)
    await sbx.commands.run(`rm ${t.dir} ${t.dir}-again`)
  })
  test('as another user belongs to that user', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`/opt/${t.dir}`, 'x', { user: 'root' })
    assert.equal((await sbx.files.getInfo(`/opt/${t.dir}`)).owner, 'root')
    const info = await sbx.files.write(t.dir, 'x', { user: 'root' })
    assert.equal(info.path, `/root/${t.dir}`)
  })
  test('where the user may not is refused', async (t) => {
    const sbx = await t.box()
    await fails(sbx.files.write('/etc/mine', 'x'), t.sdk.SandboxError, /permission denied/)
    assert.equal(await sbx.files.exists('/etc/mine'), false)
  })
  test('onto a folder is refused', async (t) => {
    await fails((await t.box()).files.write('/home/user', 'x'), t.sdk.InvalidArgumentError)
  })
  test('below a file is refused', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'x')
    await fails(sbx.files.write(`${t.dir}/below`, 'x'), t.sdk.InvalidArgumentError)
  })
  test('when the disk is full says so', async (t) => {
    const sbx = await t.fresh()
    await sbx.commands.run('head -c 400M /dev/zero > /tmp/full || true')
    await fails(sbx.files.write('/tmp/more', 'x'.repeat(100_000)), t.sdk.NotEnoughSpaceError)
    await sbx.commands.run('rm /tmp/full')
    await sbx.files.write('/tmp/more', 'x'.repeat(100_000))
  })
})

group('files/read', (test) => {
  test('gives text, bytes, a blob or a stream', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'ünï 世界')
    assert.equal(await sbx.files.read(t.dir), 'ünï 世界')
    assert.equal(await sbx.files.read(t.dir, { format: 'text' }), 'ünï 世界')
    const b = await sbx.files.read(t.dir, { format: 'bytes' })
    assert.ok(b instanceof Uint8Array)
    assert.equal(text(b), 'ünï 世界')
    const blob = await sbx.files.read(t.dir, { format: 'blob' })
    assert.ok(blob instanceof Blob)
    assert.equal(await blob.text(), 'ünï 世界')
    assert.equal(text(await drain(await sbx.files.read(t.dir, { format: 'stream' }))), 'ünï 世界')
  })
  test('gives an empty file in every format', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`touch ${t.dir}`)
    assert.equal(await sbx.files.read(t.dir), '')
    assert.equal((await sbx.files.read(t.dir, { format: 'bytes' })).length, 0)
    assert.equal((await sbx.files.read(t.dir, { format: 'blob' })).size, 0)
    assert.equal((await drain(await sbx.files.read(t.dir, { format: 'stream' }))).length, 0)
  })
  test('takes compressed answers', async (t) => {
    const sbx = await t.box()
    const long = 'compressible '.repeat(5000)
    await sbx.files.write(t.dir, long)
    assert.equal(await sbx.files.read(t.dir, { gzip: true }), long)
    assert.equal(text(await sbx.files.read(t.dir, { gzip: true, format: 'bytes' })), long)
  })
  test('keeps every byte', async (t) => {
    const sbx = await t.box()
    const all = Uint8Array.from({ length: 512 }, (_, i) => i & 255)
    await sbx.files.write(t.dir, all.buffer)
    assert.deepEqual(await sbx.files.read(t.dir, { format: 'bytes' }), all)
  })
  test('gives what the kernel makes up', async (t) => {
    const sbx = await t.box()
    assert.match(await sbx.files.read('/proc/version'), /Linux/)
    assert.match(text(await sbx.files.read('/proc/cpuinfo', { format: 'bytes' })), /processor/)
  })
  test('of what is not there fails', async (t) => {
    const sbx = await t.box()
    for (const format of ['text', 'bytes', 'blob', 'stream']) {
      await fails(sbx.files.read('not-there', { format }), t.sdk.FileNotFoundError, /not-there/)
    }
    await fails(sbx.files.read('not-there'), t.sdk.NotFoundError)
  })
  test('of a folder fails', async (t) => {
    await fails((await t.box()).files.read('/home/user'), t.sdk.InvalidArgumentError)
  })
  test('of a pipe fails and does not wait', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`mkfifo ${t.dir}`)
    await fails(sbx.files.read(t.dir), t.sdk.InvalidArgumentError)
  })
  test('of what only root may see fails for the user', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`/root/${t.dir}`, 'secret', { user: 'root' })
    await fails(sbx.files.read(`/root/${t.dir}`), t.sdk.SandboxError, /permission denied/)
    assert.equal(await sbx.files.read(`/root/${t.dir}`, { user: 'root' }), 'secret')
    await fails(sbx.files.read('/etc/hostname', { user: 'nobody-like-this' }), t.sdk.AuthenticationError)
  })
  test('can be given up', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`head -c 30M /dev/zero > ${t.dir}`)
    const stop = new AbortController()
    const stream = await sbx.files.read(t.dir, { format: 'stream', signal: stop.signal })
    const reader = stream.getReader()
    await reader.read()
    stop.abort()
    await assert.rejects(async () => { for (;;) if ((await reader.read()).done) return })
    assert.equal((await sbx.commands.run('echo fine')).stdout, 'fine\n')
  })
})

group('files/list', (test) => {
  async function tree(t) {
    const sbx = await t.box()
    await sbx.files.write(['one', 'sub/two', 'sub/deep/three', 'sub/deep/er/four'].map((p) => ({ path: `${t.dir}/${p}`, data: p })))
    return sbx
  }
  const names = (entries, t) => entries.map((e) => e.path.replace(`/home/user/${t.dir}/`, '')).sort()

  test('shows one level', async (t) => {
    const sbx = await tree(t)
    const entries = await sbx.files.list(t.dir)
    assert.deepEqual(names(entries, t), ['one', 'sub'])
    assert.deepEqual(entries.map((e) => e.type).sort(), ['dir', 'file'])
  })
  for (const [depth, want] of [
    [1, ['one', 'sub']], [2, ['one', 'sub', 'sub/deep', 'sub/two']],
    [3, ['one', 'sub', 'sub/deep', 'sub/deep/er', 'sub/deep/three', 'sub/two']],
    [50, ['one', 'sub', 'sub/deep', 'sub/deep/er', 'sub/deep/er/four', 'sub/deep/three', 'sub/two']],
  ]) {
    test(`shows ${depth} levels`, async (t) => {
      assert.deepEqual(names(await (await tree(t)).files.list(t.dir, { depth }), t), want)
    })
  }
  test('refuses a depth of 0', async (t) => {
    await fails((await t.box()).files.list('/home', { depth: 0 }), t.sdk.InvalidArgumentError)
  })
  test('shows an empty folder', async (t) => {
    const sbx = await t.box()
    await sbx.files.makeDir(t.dir)
    assert.deepEqual(await sbx.files.list(t.dir), [])
  })
  test('goes through a link to a folder', async (t) => {
    const sbx = await tree(t)
    await sbx.commands.run(`ln -s sub ${t.dir}/link`)
    assert.deepEqual(names(await sbx.files.list(`${t.dir}/link`), t), ['link/deep', 'link/two'])
    assert.ok(!names(await sbx.files.list(t.dir, { depth: 5 }), t).includes('link/two'))
  })
  test('of a file fails', async (t) => {
    const sbx = await tree(t)
    await fails(sbx.files.list(`${t.dir}/one`), t.sdk.InvalidArgumentError)
  })
  test('of what is not there fails', async (t) => {
    await fails((await t.box()).files.list('not-there'), t.sdk.FileNotFoundError)
  })
  test('of what the user may not see fails', async (t) => {
    const sbx = await t.box()
    await fails(sbx.files.list('/root'), t.sdk.SandboxError, /permission denied/)
    await sbx.files.list('/root', { user: 'root' })
  })
  test('of a thousand files is whole', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`mkdir ${t.dir} && cd ${t.dir} && touch $(seq 1000)`)
    assert.equal((await sbx.files.list(t.dir)).length, 1000)
  })
})

group('files/info', (test) => {
  test('tells all about a file', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'twelve bytes')
    await sbx.commands.run(`chmod 640 ${t.dir}; touch -d '2020-02-03 04:05:06 UTC' ${t.dir}`)
    const i = await sbx.files.getInfo(t.dir)
    assert.deepEqual([i.name, i.type, i.path, i.size, i.mode, i.permissions, i.owner, i.group, i.symlinkTarget],
      [t.dir, 'file', `/home/user/${t.dir}`, 12, 0o640, '-rw-r-----', 'user', 'user', undefined])
    assert.equal(i.modifiedTime.toISOString(), '2020-02-03T04:05:06.000Z')
  })
  test('tells all about a folder', async (t) => {
    const sbx = await t.box()
    await sbx.files.makeDir(t.dir)
    const i = await sbx.files.getInfo(t.dir)
    assert.deepEqual([i.name, i.type, i.mode & 0o777, i.permissions], [t.dir, 'dir', 0o755, 'drwxr-xr-x'])
  })
  test('tells where a link goes', async (t) => {
    const sbx = await t.box()
    await sbx.commands.run(`mkdir ${t.dir}; cd ${t.dir}; echo x > real; ln -s real link; ln -s /home/user/${t.dir} folder; ln -s nowhere broken`)
    const link = await sbx.files.getInfo(`${t.dir}/link`)
    assert.equal(link.name, 'link')
    assert.match(link.symlinkTarget, /real$/)
    assert.ok(await sbx.files.exists(`${t.dir}/broken`))
  })
  test('of what is not there fails', async (t) => {
    await fails((await t.box()).files.getInfo('not-there'), t.sdk.FileNotFoundError)
  })
  test('exists tells files, folders and nothing apart', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/f`, '')
    assert.deepEqual(await Promise.all([`${t.dir}/f`, t.dir, `${t.dir}/g`, `${t.dir}/g/h`].map((p) => sbx.files.exists(p))), [true, true, false, false])
  })
})

group('files/folder', (test) => {
  test('is made once', async (t) => {
    const sbx = await t.box()
    assert.equal(await sbx.files.makeDir(t.dir), true)
    assert.equal(await sbx.files.makeDir(t.dir), false)
  })
  test('is made with those above it', async (t) => {
    const sbx = await t.box()
    assert.equal(await sbx.files.makeDir(`${t.dir}/a/b/c`), true)
    assert.equal((await sbx.files.getInfo(`${t.dir}/a/b/c`)).type, 'dir')
  })
  test('is not made over a file', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'x')
    await fails(sbx.files.makeDir(t.dir), t.sdk.SandboxError)
    await fails(sbx.files.makeDir(`${t.dir}/below`), t.sdk.SandboxError)
  })
  test('is not made where the user may not', async (t) => {
    await fails((await t.box()).files.makeDir('/etc/mine'), t.sdk.SandboxError, /permission denied/)
  })
  test('as root is root\'s', async (t) => {
    const sbx = await t.box()
    await sbx.files.makeDir(`/opt/${t.dir}`, { user: 'root' })
    assert.equal((await sbx.files.getInfo(`/opt/${t.dir}`)).owner, 'root')
  })
})

group('files/rename', (test) => {
  test('moves a file', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/old`, 'content')
    const info = await sbx.files.rename(`${t.dir}/old`, `${t.dir}/new`)
    assert.deepEqual([info.name, info.type, info.path], ['new', 'file', `/home/user/${t.dir}/new`])
    assert.equal(await sbx.files.exists(`${t.dir}/old`), false)
    assert.equal(await sbx.files.read(`${t.dir}/new`), 'content')
  })
  test('moves a folder with what is in it', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/a/f`, 'content')
    assert.equal((await sbx.files.rename(`${t.dir}/a`, `${t.dir}/b`)).type, 'dir')
    assert.equal(await sbx.files.read(`${t.dir}/b/f`), 'content')
  })
  test('makes the folders that it moves into', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/f`, 'content')
    await sbx.files.rename(`${t.dir}/f`, `${t.dir}/x/y/g`)
    assert.equal(await sbx.files.read(`${t.dir}/x/y/g`), 'content')
  })
  test('replaces a file', async (t) => {
    const sbx = await t.box()
    await sbx.files.write([{ path: `${t.dir}/a`, data: 'a' }, { path: `${t.dir}/b`, data: 'b' }])
    await sbx.files.rename(`${t.dir}/a`, `${t.dir}/b`)
    assert.equal(await sbx.files.read(`${t.dir}/b`), 'a')
  })
  test('goes from one file system to another', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`/tmp/${t.dir}/in/f`, 'content')
    await sbx.files.rename(`/tmp/${t.dir}`, t.dir)
    assert.equal(await sbx.files.read(`${t.dir}/in/f`), 'content')
    assert.equal(await sbx.files.exists(`/tmp/${t.dir}`), false)
  })
  test('of what is not there fails', async (t) => {
    await fails((await t.box()).files.rename('not-there', t.dir), t.sdk.FileNotFoundError)
  })
  test('of what is not the user\'s fails', async (t) => {
    await fails((await t.box()).files.rename('/etc/passwd', t.dir), t.sdk.SandboxError, /permission denied/)
  })
})

group('files/remove', (test) => {
  test('removes a file', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(t.dir, 'x')
    await sbx.files.remove(t.dir)
    assert.equal(await sbx.files.exists(t.dir), false)
  })
  test('removes a folder with what is in it', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/a/b`, 'x')
    await sbx.files.remove(t.dir)
    assert.equal(await sbx.files.exists(t.dir), false)
  })
  test('removes a link and not what it leads to', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`${t.dir}/real/f`, 'x')
    await sbx.commands.run(`ln -s real ${t.dir}/link`)
    await sbx.files.remove(`${t.dir}/link`)
    assert.equal(await sbx.files.read(`${t.dir}/real/f`), 'x')
  })
  test('of what is not there is fine', async (t) => {
    await (await t.box()).files.remove('not-there')
  })
  test('of what is not the user\'s fails', async (t) => {
    const sbx = await t.box()
    await fails(sbx.files.remove('/etc/passwd'), t.sdk.SandboxError, /permission denied/)
    assert.equal(await sbx.files.exists('/etc/passwd'), true)
  })
})

group('files/names', (test) => {
  for (const name of ['with space', 'ünï-世界-😀', 'quote\'"back\\slash', 'per%20cent%', 'hash#question?amp&plus+', '-dash', 'semi;colon=x', 'new\nline', '..dots..', 'n'.repeat(255)]) {
    test(`of the kind ${JSON.stringify(name.slice(0, 30))}`, async (t) => {
      const sbx = await t.box()
      const file = `${t.dir}/${name}`
      const info = await sbx.files.write(file, 'content', { useOctetStream: true })
      assert.equal(info.path, `/home/user/${file}`)
      assert.equal(await sbx.files.read(file), 'content')
      assert.deepEqual((await sbx.files.list(t.dir)).map((e) => e.name), [name])
      assert.equal((await sbx.files.getInfo(file)).name, name)
      await sbx.files.rename(file, `${t.dir}/other`)
      await sbx.files.rename(`${t.dir}/other`, file)
      await sbx.files.remove(file)
      assert.deepEqual(await sbx.files.list(t.dir), [])
    })
  }
  for (const name of ['form space', 'ünï-世界', 'semi;colon', 'per%20cent', 'back\\slash', '-dash']) {
    test(`in a form of the kind ${JSON.stringify(name)}`, async (t) => {
      const sbx = await t.box()
      await sbx.files.write([{ path: `${t.dir}/${name}`, data: 'one' }, { path: `${t.dir}/b`, data: 'two' }])
      assert.deepEqual((await sbx.files.list(t.dir)).map((e) => e.name).sort(), [name, 'b'].sort())
    })
  }
  test('understand the home, dots and doubled slashes', async (t) => {
    const sbx = await t.box()
    await sbx.files.write(`~/${t.dir}/f`, 'content')
    for (const p of [`/home/user/${t.dir}/f`, `${t.dir}/../${t.dir}/./f`, `/home//user/${t.dir}///f`, `/../../home/user/${t.dir}/f`]) {
      assert.equal(await sbx.files.read(p), 'content')
    }
  })
  test('that are too long are refused', async (t) => {
    const sbx = await t.box()
    for (const p of ['n'.repeat(256), 'x/'.repeat(2500) + 'f']) {
      await fails(sbx.files.write(p, 'x', { useOctetStream: true }), t.sdk.InvalidArgumentError)
      await fails(sbx.files.read(p), t.sdk.InvalidArgumentError)
      await fails(sbx.files.makeDir(p), t.sdk.InvalidArgumentError)
      await fails(sbx.files.getInfo(p), t.sdk.InvalidArgumentError)
    }
  })
  test('with a NUL are refused', async (t) => {
    const sbx = await t.box()
    const f = sbx.files
    for (const call of [
      () => f.write('a\0b', 'x', { useOctetStream: true }), () => f.read('a\0b'), () => f.makeDir('a\0b'), () => f.list('a\0b'),
      () => f.getInfo('a\0b'), () => f.remove('a\0b'), () => f.rename('a\0b', 'c'), () => f.exists('a\0b'),
    ]) await fails(call(), t.sdk.InvalidArgumentError)
  })
})
