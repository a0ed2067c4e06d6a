package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// issuer signs tokens, which jwt_authn verifies.
type issuer struct{ key *ecdsa.PrivateKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return issuer{key}
}

// keys returns the JSON Web Key Set that verifies its tokens.
func (i issuer) keys(t *testing.T) string {
	t.Helper()
	point := must.Get(i.key.PublicKey.Bytes())(t)
	encode := base64.RawURLEncoding.EncodeToString
	keys := must.Get(json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "k", "x": encode(point[1:33]), "y": encode(point[33:]),
	}}}))(t)
	return string(keys)
}

func (i issuer) token(t *testing.T, payload string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + encode([]byte(payload))
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	must.OK(t, err)
	signature := make([]byte, 64)
	for at, n := range []*big.Int{r, s} {
		n.FillBytes(signature[32*at:][:32])
	}
	return signed + "." + encode(signature)
}

// verifying returns a filter that verifies tokens in their usual places, and in x-token below /t/.
// It requires none below /free/.
func (i issuer) verifying(t *testing.T) envoytest.Object {
	t.Helper()
	keys := envoytest.Object{"inline_string": i.keys(t)}
	requires := func(provider string) envoytest.Object { return envoytest.Object{"provider_name": provider} }
	prefix := func(path string) envoytest.Object { return envoytest.Object{"prefix": path} }
	return envoytest.Object{"name": "envoy.filters.http.jwt_authn", "typed_config": envoytest.Typed("envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication", envoytest.Object{
		"providers": envoytest.Object{
			"usual": envoytest.Object{
				"issuer": "i", "local_jwks": keys, "forward": true, "payload_in_metadata": "verified",
				"claim_to_headers": []envoytest.Object{{"header_name": "x-claim-sub", "claim_name": "sub"}},
			},
			"other": envoytest.Object{
				"issuer": "i", "local_jwks": keys, "forward": true,
				"from_headers": []envoytest.Object{{"name": "x-token", "value_prefix": "Bearer "}},
			},
		},
		"rules": []envoytest.Object{
			{"match": prefix("/free/")}, {"match": prefix("/t/"), "requires": requires("other")}, {"match": prefix("/"), "requires": requires("usual")},
		},
	})}
}

// verified limits by claims that an earlier filter has verified: three requests for each subject.
// Below /h/ and /t/ it counts each of a test's cases separately.
const verified = `{"rules": [
	{"name": "authorization", "match": {"path": {"prefix": "/h/"}}, "key": [{"jwt_claim": "sub"}, "path"], "limits": [{"limit": 3, "window": "1d"}]},
	{"name": "token", "match": {"path": {"prefix": "/t/"}}, "key": [{"jwt_claim": "sub", "header": "x-token"}, "path"], "limits": [{"limit": 3, "window": "1d"}]},
	{"name": "header", "match": {"path": {"prefix": "/c/"}}, "key": [{"header": "x-claim-sub"}], "limits": [{"limit": 3, "window": "1d"}]},
	{"name": "metadata", "match": {"path": {"prefix": "/m/"}}, "key": [{"jwt_claim": "sub", "metadata": "verified"}], "limits": [{"limit": 3, "window": "1d"}]},
	{"name": "claims", "match": {"path": {"prefix": "/claims/"}}, "key": [
		{"jwt_claim": "n", "metadata": "verified"}, {"jwt_claim": "admin", "metadata": "verified"},
		{"jwt_claim": "realm.roles.1", "metadata": "verified"}, {"jwt_claim": "https://x\\.example/plan", "metadata": "verified"},
		{"jwt_claim": "realm", "metadata": "verified"}, {"jwt_claim": "none", "metadata": "verified"}],
		"limits": [{"limit": 3, "window": "1d"}],
		"overrides": {"keys": [{"key": ["12.5", "true", "b", "gold", "", ""], "limits": [{"limit": 77, "window": "1d"}]}]}}
]}`

// TestVerifiedTokens sends a token in all forms that jwt_authn verifies, each time together with an
// unsigned token. None gets its client another counter.
func TestVerifiedTokens(t *testing.T) {
	onEnvoyAlone(t, 1, all, func(t *testing.T, d envoys) {
		issuer := newIssuer(t)
		n := d.prepare(t, nodeConfig{configuration: verified, workers: 1})
		plugin := must.Get(n.plugin())(t)
		n.hcm = envoytest.Object{"http_filters": []envoytest.Object{issuer.verifying(t), plugin, envoytest.Router()}}
		n.listen(t)
		valid := issuer.token(t, `{"iss": "i", "sub": "ann", "n": 12.5, "admin": true, "realm": {"roles": ["a", "b"]}, "https://x.example/plan": "gold"}`)
		usual := map[string]func(forged string) []string{
			"list": func(forged string) []string {
				return []string{"authorization", "bearer " + forged + ",Bearer " + valid}
			},
			"list2": func(forged string) []string { return []string{"authorization", forged + " Bearer " + valid} },
			"no-scheme": func(forged string) []string {
				return []string{"authorization", forged, ":path", "?access_token=" + valid}
			},
			"capitals": func(forged string) []string {
				return []string{"authorization", "BEARER " + forged, ":path", "?access_token=" + valid}
			},
			"lines": func(forged string) []string {
				return []string{"authorization", forged, "authorization", "Bearer " + valid}
			},
			"other-scheme": func(forged string) []string { return []string{"authorization", forged + "Bearer " + valid} },
			"spaces":       func(string) []string { return []string{"authorization", "Bearer    " + valid} },
			"claim": func(forged string) []string {
				return []string{"authorization", "Bearer " + valid, "x-claim-sub", forged}
			},
			"claim-in-two": func(forged string) []string {
				return []string{"authorization", "Bearer " + valid, "x-claim-sub", forged, "x-claim-sub", "x"}
			},
			"access_token": func(forged string) []string {
				return []string{":path", "?access_token=" + valid + "&access_token=" + forged}
			},
			"as-it-should": func(string) []string { return []string{"authorization", "Bearer " + valid} },
			"two-in-params": func(forged string) []string {
				return []string{":path", "?access_token=" + valid, "x-token", "Bearer " + forged}
			},
		}
		other := map[string]func(forged string) []string{
			"list":   func(forged string) []string { return []string{"x-token", "bearer " + forged + ",Bearer " + valid} },
			"lines":  func(forged string) []string { return []string{"x-token", forged, "x-token", "Bearer " + valid} },
			"lines2": func(forged string) []string { return []string{"x-token", "Bearer " + valid, "x-token", forged} },
			"simple": func(string) []string { return []string{"x-token", "Bearer " + valid} },
		}
		client := client(t)
		passed := func(path string, request func(forged string) []string) (passed int) {
			for i := range 6 {
				headers := request(token(fmt.Sprintf(`{"iss": "i", "sub": "forged %d"}`, i)))
				at := strings.Index(strings.Join(headers, "\x00"), ":path\x00")
				if at < 0 {
					headers = append(headers, ":path", path)
				}
				for i := 0; i < len(headers); i += 2 {
					if headers[i] == ":path" && at >= 0 {
						headers[i+1] = path + headers[i+1]
					}
				}
				switch r := ask(t, client, n.address, headers...); r.status {
				case http.StatusOK:
					passed++
				case http.StatusTooManyRequests:
				default:
					t.Errorf("%s: status %d, so jwt_authn refuses it: %s", path, r.status, r.body)
				}
			}
			return passed
		}
		for name, request := range usual {
			must.Equal(t, passed("/h/"+name, request), 3, "authorization, %s: pass", name)
		}
		for name, request := range other {
			must.Equal(t, passed("/t/"+name, request), 3, "x-token, %s: pass", name)
		}
		for _, path := range []string{"/m/", "/c/"} {
			all := 0
			for _, request := range usual {
				all += passed(path, request)
			}
			must.Equal(t, all, 3, "%s: pass in all forms together", path)
		}
		r := ask(t, client, n.address, ":path", "/claims/", "authorization", "Bearer "+valid)
		r.want(t, "x-ratelimit-limit: 77")
		must.Equal(t, ask(t, client, n.address, ":path", "/claims/", "authorization", "Bearer "+token(`{"iss": "i", "sub": "ann"}`)).status, http.StatusUnauthorized, "a forged token: status")
	})
}
