// Requests to the process that serves this page, and what they may end with.

const kTimeoutMs = 8000;
const kTokenKey = 'remora.token';

// The endpoint asks for credentials.
export class Unauthorized extends Error {
  constructor(bearer, sent) {
    super('not authorised');
    this.bearer = bearer;  // by a token; else by what a browser asks for itself
    this.sent = sent;      // a token went with the request, so it is wrong
  }
}

// It answered, and not with what was asked for.
export class Refused extends Error {
  constructor(status, text) {
    super(`${status} ${text}`.trim());
    this.status = status;
  }
}

// Storage can be forbidden to a page; then a choice lasts until it is reloaded.
export const stored = {
  get(area, key) {
    try {
      return globalThis[area].getItem(key);
    } catch {
      return null;
    }
  },
  set(area, key, value) {
    try {
      globalThis[area].setItem(key, value);
    } catch { /* see above */
    }
  },
};

let token = stored.get('sessionStorage', kTokenKey);

export function useToken(value) {
  token = value;
  stored.set('sessionStorage', kTokenKey, value);
}

export async function ask(path) {
  const headers = token ? {Authorization: `Bearer ${token}`} : {};
  const sent = Boolean(token);
  const answer = await fetch(path, {
    headers,
    cache: 'no-store',
    credentials: 'same-origin',
    signal: AbortSignal.timeout(kTimeoutMs)
  });
  if (answer.status === 401) {
    await answer.body?.cancel();
    throw new Unauthorized(/\bbearer\b/i.test(answer.headers.get('WWW-Authenticate') ?? ''), sent);
  }
  if (!answer.ok) {
    const text = (await answer.text()).slice(0, 200).trim();
    throw new Refused(answer.status, text || answer.statusText);
  }
  return answer.json();
}
