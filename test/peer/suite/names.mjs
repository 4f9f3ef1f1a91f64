// Loaded before anything else where the SDK is to reach sandboxes by their
// host names: stands in for the name server that has every name of the domain.
import dns from 'node:dns'

const domain = '.' + process.env.E2B_DOMAIN.split(':')[0]
const real = dns.lookup
dns.lookup = (name, opts, done) => {
  if (typeof opts === 'function') [opts, done] = [{}, opts]
  if (!name.endsWith(domain)) return real(name, opts, done)
  process.nextTick(done, null, opts?.all ? [{ address: '127.0.0.1', family: 4 }] : '127.0.0.1', 4)
}
