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
		// Headers of each form of a request, in which FORGED is the unsigned token and VALID the other.
		usual := map[string][]string{
			"list":          {"authorization", "bearer FORGED,Bearer VALID"},
			"list2":         {"authorization", "FORGED Bearer VALID"},
			"no-scheme":     {"authorization", "FORGED", ":path", "?access_token=VALID"},
			"capitals":      {"authorization", "BEARER FORGED", ":path", "?access_token=VALID"},
			"lines":         {"authorization", "FORGED", "authorization", "Bearer VALID"},
			"other-scheme":  {"authorization", "FORGEDBearer VALID"},
			"spaces":        {"authorization", "Bearer    VALID"},
			"claim":         {"authorization", "Bearer VALID", "x-claim-sub", "FORGED"},
			"claim-in-two":  {"authorization", "Bearer VALID", "x-claim-sub", "FORGED", "x-claim-sub", "x"},
			"access_token":  {":path", "?access_token=VALID&access_token=FORGED"},
			"as-it-should":  {"authorization", "Bearer VALID"},
			"two-in-params": {":path", "?access_token=VALID", "x-token", "Bearer FORGED"},
		}
		other := map[string][]string{
			"list":   {"x-token", "bearer FORGED,Bearer VALID"},
			"lines":  {"x-token", "FORGED", "x-token", "Bearer VALID"},
			"lines2": {"x-token", "Bearer VALID", "x-token", "FORGED"},
			"simple": {"x-token", "Bearer VALID"},
		}
		client := client(t)
		passed := func(path string, form []string) (passed int) {
			for i := range 6 {
				tokens := strings.NewReplacer("FORGED", token(fmt.Sprintf(`{"iss": "i", "sub": "forged %d"}`, i)), "VALID", valid)
				headers := []string{":path", path}
				for i := 0; i < len(form); i += 2 {
					if value := tokens.Replace(form[i+1]); form[i] == ":path" {
						headers[1] += value
					} else {
						headers = append(headers, form[i], value)
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
		for name, form := range usual {
			must.Equal(t, passed("/h/"+name, form), 3, "authorization, %s: pass", name)
		}
		for name, form := range other {
			must.Equal(t, passed("/t/"+name, form), 3, "x-token, %s: pass", name)
		}
		for _, path := range []string{"/m/", "/c/"} {
			all := 0
			for _, form := range usual {
				all += passed(path, form)
			}
			must.Equal(t, all, 3, "%s: pass in all forms together", path)
		}
		r := ask(t, client, n.address, ":path", "/claims/", "authorization", "Bearer "+valid)
		r.want(t, "x-ratelimit-limit: 77")
		must.Equal(t, ask(t, client, n.address, ":path", "/claims/", "authorization", "Bearer "+token(`{"iss": "i", "sub": "ann"}`)).status, http.StatusUnauthorized, "a forged token: status")
	})
}
