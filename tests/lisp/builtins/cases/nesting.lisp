(get-in {:a {:b 1}} [:a :b]) => 1
(get-in {:a [{:b 1} {:b 2}]} [:a 1 :b]) => 2
(get-in {"a" {"b" 1}} [:a :b]) => 1
(get-in {:a nil} [:a] 5) => nil
(get-in {:a 1} [:x :y] 5) => 5
(get-in {:a 1} []) => {:a 1}
(get-in nil [:a]) => nil
(get-in {:a [1]} [:a :b]) => nil
(get-in {:a 1} [:a :b]) => nil
(get-in {:a 1} :a) !! get-in: expects a vector of keys and indices, got a keyword
(assoc-in {} [:a :b] 1) => {:a {:b 1}}
(assoc-in {:a [1 2]} [:a 1] 9) => {:a [1 9]}
(assoc-in {"a" {}} [:a :b] 1) => {"a" {:b 1}}
(assoc-in nil [:a] 1) => {:a 1}
(assoc-in {:a 5} [:a :b] 1) !! assoc-in: expects a map or vector, got an integer
(assoc-in {} [] 1) !! assoc-in: the path is empty
(assoc-in {:a []} [:a :b] 1) !! expects an index into a vector, got a keyword
(update-in {:a {:n 1}} [:a :n] inc) => {:a {:n 2}}
(update-in {} [:a :b] (fnil inc 0)) => {:a {:b 1}}
(update-in {:a [1 2]} [:a 0] + 10) => {:a [11 2]}
(update-in {"a" 1} [:a] inc) => {"a" 2}
(update-in {:a 1} [:a]) !! update-in
(update-in {:a 1} :a inc) !! update-in: expects a vector of keys
(dissoc-in {:a {:b 1 :c 2}} [:a :b]) => {:a {:c 2}}
(dissoc-in {:a 1} [:x :y]) => {:a 1}
(dissoc-in {:a 1} [:a]) => {}
(dissoc-in {:a 1} :a) !! dissoc-in: expects a vector
(postwalk (fn [x] (if (number? x) (inc x) x)) [1 {:a [2]}]) => [2 {:a [3]}]
(postwalk identity {:a #{1 [2]}}) => {:a #{1 [2]}}
(postwalk (fn [x] (if (vector? x) (count x) x)) [[1 2] [3]]) => 2
(postwalk 1 [1]) !! not callable
(walk/postwalk identity [1]) => [1]
(prewalk (fn [x] (if (vector? x) (map inc x) x)) [1 2]) => [2 3]
(prewalk identity nil) => nil
(prewalk identity {:a {:b 1}}) => {:a {:b 1}}
(prewalk :a 1) !! cannot look up
(keywordize-keys {"a" [{"b" 1}] :c 2}) => {:a [{:b 1}] :c 2}
(keywordize-keys [1]) => [1]
(keywordize-keys nil) => nil
(stringify-keys {:a [{:b 1}]}) => {"a" [{"b" 1}]}
(stringify-keys 5) => 5
(stringify-keys {1 2}) => {1 2}
(get-in {:a [1 2]} [:a 1.0]) => 2
